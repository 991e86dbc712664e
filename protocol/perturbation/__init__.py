"""Server-side perturbation: clients compute on perturbed parameters, the server recovers exact gradients.

One round, in calls. Server and clients have traced the same model: `plan = trace(model, example)`.

    server   key = new_key(plan, settings, random);  send key.public and key.perturb(parameters)
    client   load_parameters(plan, module, perturbed)
             squared error, or `scale` alone:  terms = client_terms(plan, module, public, inputs, targets)
             cross entropy with an offset:     forward = run_forward(plan, module, public, inputs)
                                               exchange = exchange_request(forward, random)
    server                                     reply = answer(key, exchange.request, random)
    client                                     softmax = conclude(public, exchange, reply)
                                               terms = cross_entropy_terms(forward, softmax, targets)
    server   key.public.require_used(terms.key_id, terms.public_digest);  aggregate terms with the clients' weights
             found = recover(key, aggregate);  step with found.gradient;  settings = settings.adapted(found.condition)

After training, `key.perturb(parameters, inference=True)` is a model with true predictions and other weights.
What all this hides, and what it does not, is in specs/perturbation-limits.md.
"""
