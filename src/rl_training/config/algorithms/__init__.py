"""The settings of each algorithm: a module each with its hyper-parameters, networks and all of `algo_kwargs`; free of torch.

Each default and each range is written here once. Learners check their keyword arguments against these classes, and the
config schema is built from them, so a value refused in a YAML file is refused in Python with the same message.
"""
