"""`ham10000`: skin lesions in seven classes, 32 x 32 pixels, from an npz file.

One lesion has several pictures. A fifth of the lesions, with all their pictures, is the test set:
pictures of one lesion on both sides would make the test leak. Two thirds of the pictures are
of one class, so read the balanced accuracy beside the accuracy.
"""

from __future__ import annotations

import numpy as np

from veilsum.roles.learning.datasets.common import held_out, refuse_argument
from veilsum.roles.learning.datasets.files import (
    find_file,
    missing,
    read_npz,
    require_folder,
    require_images,
    require_labels,
)
from veilsum.roles.learning.datasets.images import channels_first, image_task
from veilsum.roles.learning.datasets.supervised import SupervisedTask
from veilsum.roles.learning.errors import TaskError
from veilsum.roles.learning.task import Samples, TaskOptions

CLASSES = 7
DEFAULT_MODEL = "lenet5"
NAMES = ("ham10000_32x32.npz", "ham10000.npz")
ACCEPTED = "an npz file with x (N x 32 x 32 x 3 uint8), y (0 to 6) and lesion_id (text), one row per picture"


def ham10000(options: TaskOptions) -> SupervisedTask:
    refuse_argument("ham10000", options)
    folder = require_folder("ham10000", options, f"{' or '.join(NAMES)}: {ACCEPTED}")
    path = find_file(folder, NAMES)
    if path is None:
        raise missing("ham10000", folder, NAMES, ACCEPTED)
    images, labels, lesions = read_npz(path, ["x", "y", "lesion_id"])
    pixels = channels_first(require_images(path, images, (32, 32, 3)))
    targets = require_labels(path, labels, len(pixels), CLASSES)
    if lesions.shape != (len(pixels),):
        raise TaskError(f"{path}: need one lesion_id for each of {len(pixels)} pictures")
    names, lesion_of = np.unique(lesions, return_inverse=True)
    for_test = held_out(len(names))[lesion_of]
    train = Samples(pixels[~for_test], targets[~for_test])
    test = Samples(pixels[for_test], targets[for_test])
    return image_task(train, test, CLASSES, DEFAULT_MODEL, options)
