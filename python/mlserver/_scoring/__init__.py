"""The parts of `mlserver.scoring`: the child process, its shared memory, and the data that goes through it.

    columns   a caller's columns and arrays, as buffers in the form of tensors
    inputs    which of them become which inputs of a model
    outputs   answers, assembled from batches, as values of the caller's library
    memory    the shared memory file of a child
    child     a process `mlserver score`, and the calls to it
    processes one child per process and set of arguments: started, shared, ended
    batches   the rows of a call as requests
    options   the arguments of scorers and of jobs in engines, with their checks

Only the standard library is imported. NumPy, pandas and pyarrow are used if the caller's data is of them.
"""
