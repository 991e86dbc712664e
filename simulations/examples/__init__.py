"""Small programs that do one thing each, to be read, run and changed.

    python simulations/examples/compare_schemes.py    what every scheme costs, and what its server learns
    python simulations/examples/own_task.py           a task of one's own, uneven among the parties
    python simulations/examples/lost_parties.py       parties that vanish, a network that misbehaves
    python simulations/examples/own_defence.py        a defence of one's own, with and without
    python simulations/examples/property_test.py      a scheme at the table, under every schedule of faults

They import what users import. More for whoever extends the package is in tests/examples/.
"""
