"""Every setting of a federation, once: its place in federation.toml, its flag, its form and its meaning.

The file, the command line and the page specs/federation-file.md all speak from this table. It imports
nothing heavy, because `--help` reads it; the words that the protocol itself knows as enumerations are
repeated here, and a test holds the two together.

`agreed` settings are what the organiser signs with the roster: everything that decides about safety or about
the result. Rounds, data folders, devices, deadlines and the broker's address may differ between machines.
"""

from __future__ import annotations

from veilsum.roles.config.perturbation_settings import PERTURBATION
from veilsum.roles.config.setting import Form, Setting

__all__ = ["BY_ATTRIBUTE", "SETTINGS", "TABLES", "Form", "Setting"]

TABLES = {
    "federation": "Who does what together, and for how long.",
    "task": "What is learned, and from whose data.",
    "training": "How a party trains in one round, and what it uploads.",
    "numbers": "How numbers travel: fixed-point words. `veilsum plan` shows the precision they leave.",
    "protocol": "What the parties demand of each other.",
    "noise": "How perturbed and bilateral perturb the model. No other scheme uses it.",
    "timing": "How long each wait may last, in seconds. Local: machines may differ.",
    "devices": "Where parties train: auto, cpu, cuda, cuda:INDEX or mps. Local: machines may differ.",
    "broker": "Where the MQTT broker is. It is never trusted: everything is sealed and signed end to end.",
    "options": "Settings of a third-party scheme, all texts.",
}

FEDERATION = (
    Setting(
        "name",
        "federation",
        "name",
        Form.TEXT,
        "what the federation is called; keeps federations on one broker apart",
        metavar="NAME",
    ),
    Setting(
        "scheme",
        "federation",
        "scheme",
        Form.TEXT,
        "who may learn what: plain (the server sees every update), masked (the server sees the mean), "
        "mpc (the same, through shares between peers), ampc (the server sees neither), perturbed (parties train on "
        "a perturbed model), bilateral (the same, and the server sees the mean), or package.module:name or "
        "./file.py:Name for a scheme of your own",
        metavar="SCHEME",
    ),
    Setting(
        "parties",
        "federation",
        "parties",
        Form.NAMES,
        "who takes part: how many (they are called p1, p2, ...), or names with commas between",
        metavar="N",
    ),
    Setting(
        "rounds",
        "federation",
        "rounds",
        Form.WHOLE,
        "how many rounds; may be raised later to go on from the last one",
        agreed=False,
        metavar="N",
    ),
    Setting(
        "seed",
        "federation",
        "seed",
        Form.WHOLE,
        "drives split, first model and batch order; never keys or masks",
        metavar="N",
    ),
)

TASK = (
    Setting(
        "task",
        "task",
        "name",
        Form.TEXT,
        "digits, synthetic-regression, vectors:D (no training, D random numbers), bank, mnist, cifar10, "
        "ham10000, or package.module:function or ./file.py:function for a task of your own",
        metavar="TASK",
    ),
    Setting(
        "data",
        "task",
        "data",
        Form.TEXT,
        "folder with the data, for tasks that need one; with split own PARTY=FOLDER,PARTY=FOLDER,... for parties on "
        "one machine",
        agreed=False,
        metavar="FOLDER",
    ),
    Setting(
        "split",
        "task",
        "split",
        Form.TEXT,
        "who holds which sample: iid, dirichlet:A (small A is far from iid), one-class:P, by-order, or own "
        "(every party has its own folder)",
        metavar="SPLIT",
    ),
    Setting("model", "task", "model", Form.TEXT, "a model other than the task's own", metavar="MODEL"),
    Setting("loss", "task", "loss", Form.TEXT, "a loss other than the task's own", choices=("ce", "mse")),
)

TRAINING = (
    Setting(
        "payload",
        "training",
        "payload",
        Form.TEXT,
        "what is averaged: the trained model, its delta to the round's model, or one gradient; perturbed and "
        "bilateral always take the gradient",
        choices=("model", "delta", "gradient"),
    ),
    Setting("optimizer", "training", "optimizer", Form.TEXT, "starts afresh in every round", ("sgd", "adam")),
    Setting("learning_rate", "training", "learning_rate", Form.NUMBER, "of the first round", metavar="RATE"),
    Setting("momentum", "training", "momentum", Form.NUMBER, "of sgd, from 0 to below 1", metavar="M"),
    Setting(
        "local_epochs",
        "training",
        "local_epochs",
        Form.WHOLE,
        "passes over a party's samples in one round; 5 if not given, 1 with payload gradient",
        metavar="N",
    ),
    Setting(
        "batch_size", "training", "batch_size", Form.BATCH, "samples in a step; all for one step", metavar="N"
    ),
    Setting(
        "lr_schedule",
        "training",
        "lr_schedule",
        Form.TEXT,
        "learning rate over the rounds: constant, step:every=ROUNDS,factor=F or cosine:rounds=ROUNDS",
        metavar="FORM",
    ),
    Setting(
        "gradient_batch",
        "training",
        "gradient_batch",
        Form.TEXT,
        "with payload gradient: over all samples, or over one batch",
        choices=("full", "mini"),
    ),
    Setting(
        "server_optimizer",
        "training",
        "server_optimizer",
        Form.TEXT,
        "the step on a mean gradient or delta, which goes on from round to round: sgd, momentum, adam, adagrad or yogi "
        "with settings, as in adam:lr=0.01; where the server takes it alone (plain, perturbed, bilateral) any "
        "optimiser of torch",
        metavar="OPTIMIZER",
    ),
    Setting(
        "defence",
        "training",
        "defence",
        Form.TEXT,
        "what a party does to its update before it leaves: spn, dp:sigma=S, ppdl:share=P, sketch, with settings "
        "as in spn:alpha2=0.1,bits=64, several joined by +; empty for none",
        metavar="DEFENCE",
    ),
)

NUMBERS = (
    Setting(
        "bits",
        "numbers",
        "bits",
        Form.WHOLE,
        "word size; 32 halves the traffic, 64 is more precise",
        (32, 64),
    ),
    Setting(
        "clip",
        "numbers",
        "clip",
        Form.NUMBER,
        "the largest absolute value of a coordinate; a larger one is refused where it is held",
        metavar="C",
    ),
    Setting(
        "max_weight",
        "numbers",
        "max_weight",
        Form.WHOLE,
        "the most samples one party may hold; left out, the size of the task's training set",
        metavar="W",
    ),
    Setting(
        "weights",
        "numbers",
        "weights",
        Form.TEXT,
        "an update counts by its samples, by the power of two at or below them, or like any other",
        choices=("samples", "bucketed", "equal"),
    ),
)

PROTOCOL = (
    Setting(
        "min_parties",
        "protocol",
        "min_parties",
        Form.WHOLE,
        "parties refuse to take part in a smaller sum; if not given colluders + 2 and at least 3, for plain and "
        "perturbed 1",
        metavar="N",
    ),
    Setting(
        "threat",
        "protocol",
        "threat",
        Form.TEXT,
        "what the server may do: follow the protocol and be curious, or lie about who is there",
        choices=("semi-honest", "lying"),
    ),
    Setting(
        "colluders",
        "protocol",
        "colluders",
        Form.WHOLE,
        "how many parties may work with the server; if not given a third of them, rounded down, and none with threat "
        "semi-honest; more can be set, not fewer",
        metavar="C",
    ),
    Setting(
        "recovery",
        "protocol",
        "recovery",
        Form.TEXT,
        "when an upload is missing: rebuild its masks from shares, or end the run (none)",
        choices=("shares", "none"),
    ),
    Setting(
        "graph",
        "protocol",
        "graph",
        Form.TEXT,
        "who shares secrets with whom: auto (complete up to 100 parties, k-regular beyond), complete, ring, "
        "k-regular:K or edges:a-b,b-c,...",
        metavar="GRAPH",
    ),
    Setting(
        "threshold",
        "protocol",
        "threshold",
        Form.WHOLE,
        "neighbours that rebuild a secret, with graph k-regular:K; found for you with graph auto",
        metavar="T",
    ),
    Setting(
        "corrupt",
        "protocol",
        "corrupt",
        Form.NUMBER,
        "fraction of parties that may work with the server; sizes the k-regular graph of auto",
        metavar="F",
    ),
    Setting(
        "dropout",
        "protocol",
        "dropout",
        Form.NUMBER,
        "fraction of parties that may vanish in a round; sizes the k-regular graph of auto",
        metavar="F",
    ),
    Setting(
        "bias",
        "protocol",
        "bias",
        Form.TEXT,
        "ampc: each peer hides behind its own bias, or all behind the common one (needs recovery none)",
        choices=("own", "common"),
    ),
    Setting(
        "shares",
        "protocol",
        "shares",
        Form.TEXT,
        "mpc and ampc: a share travels as its seed, or as the whole tensor; the result is the same",
        choices=("seeded", "tensor"),
    ),
    Setting(
        "rekey",
        "protocol",
        "rekey",
        Form.TEXT,
        "mpc and ampc: new sealed seeds when the members change, or in every round",
        choices=("epoch", "round"),
    ),
    Setting(
        "schedule",
        "protocol",
        "schedule",
        Form.TEXT,
        "all parties train at once, or (plain only) one after the other",
        choices=("fedavg", "round-robin"),
    ),
    Setting(
        "differencing",
        "protocol",
        "differencing",
        Form.TEXT,
        "what a party does when sums over different cohorts, compared, may tell about few parties",
        choices=("warn", "refuse"),
    ),
    Setting(
        "max_attempts", "protocol", "max_attempts", Form.WHOLE, "attempts before a round fails", metavar="N"
    ),
    Setting(
        "tell_metric",
        "protocol",
        "tell_metric",
        Form.SWITCH,
        "parties add to their statuses how good the common model is: broker, observers and server read it",
    ),
)

TIMING = (
    Setting(
        "opening_s",
        "timing",
        "opening_s",
        Form.NUMBER,
        "how long the server waits for parties before it opens a session",
        agreed=False,
        metavar="S",
    ),
    Setting(
        "phase_s",
        "timing",
        "phase_s",
        Form.NUMBER,
        "how long one exchange of messages may take",
        agreed=False,
        metavar="S",
    ),
    Setting(
        "training_s", "timing", "training_s", Form.NUMBER, "how long training may take", (), False, "", "S"
    ),
    Setting(
        "patience_s",
        "timing",
        "patience_s",
        Form.NUMBER,
        "how long a party waits for a silent server; at least training_s + phase_s",
        agreed=False,
        metavar="S",
    ),
)

DEVICES = (
    Setting(
        "device",
        "devices",
        "default",
        Form.TEXT,
        "where parties train: auto, cpu, cuda, cuda:INDEX or mps; auto and cuda take GPUs in turn",
        agreed=False,
        metavar="DEVICE",
    ),
)

BROKER = (
    Setting("broker_host", "broker", "host", Form.TEXT, "host name of the broker", (), False, "", "HOST"),
    Setting("broker_port", "broker", "port", Form.WHOLE, "port of the broker", (), False, "", "PORT"),
    Setting("broker_tls", "broker", "tls", Form.SWITCH, "whether connections use TLS", agreed=False),
    Setting(
        "broker_ca",
        "broker",
        "ca",
        Form.TEXT,
        "certificate that signed the broker's, relative to federation.toml; the machine's own list if not given",
        agreed=False,
        metavar="FILE",
    ),
    Setting(
        "mqtt_version",
        "broker",
        "mqtt_version",
        Form.TEXT,
        "auto tries MQTT 5 first",
        choices=("auto", "3.1.1", "5"),
        agreed=False,
    ),
)

SETTINGS = (*FEDERATION, *TASK, *TRAINING, *NUMBERS, *PROTOCOL, *PERTURBATION, *TIMING, *DEVICES, *BROKER)
BY_ATTRIBUTE = {setting.attribute: setting for setting in SETTINGS}
