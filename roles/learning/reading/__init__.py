"""From what users have to the arrays of samples: arrays and tensors of other types, CSV files, data sets of torch.

`Samples`, `Samples.from_csv` and `Samples.from_dataset` are the way in. Nothing here imports torch or an image library.
"""
