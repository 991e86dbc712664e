"""`python -m veilsum` is the `veilsum` command.

`python -m` puts the current folder before everything that is installed. It may be a stranger's, so it is taken off
again before anything else is imported. A folder `veilsum` in it, such as a clone of ours, has then been taken for the
package, where an editable installation finds the package by other means than the path: that one is forgotten, too.
What Python itself imports before that, its module `runpy`, is out of reach from here: in a folder that one does not
trust, `veilsum` or `python -P -m veilsum` is safe from that as well.
"""

import os
import sys

if not sys.flags.safe_path and sys.path[:1] == [os.getcwd()]:  # noqa: PTH109 - pathlib is not imported yet
    del sys.path[0]
    if getattr(sys.modules.get("veilsum"), "__file__", None) is None:
        sys.modules.pop("veilsum", None)

from veilsum.roles.cli.start import main

if __name__ == "__main__":
    sys.exit(main())
