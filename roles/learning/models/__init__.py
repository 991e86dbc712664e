"""Networks by name: `build_model("lenet5", (1, 28, 28), 10, seed=7)`.

What may be used from outside is exported here; one family of networks is one file.
"""

from veilsum.roles.learning.models.catalogue import MODEL_FORMS, build_model
from veilsum.roles.learning.models.network import Network

__all__ = ["MODEL_FORMS", "Network", "build_model"]
