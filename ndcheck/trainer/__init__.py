"""The reference N-D trainer: the smallest honest implementation of every parallel axis.

What each axis cuts (2 ranks per axis; a rank is named by its index along the axis)::

                    samples of a batch   tokens of a sample   weights
                    s0  s1  s2  s3       t0 t1 | t2 t3        W (rows or columns)

    dp_replicate    0   0   1   1        whole                whole, a copy on each rank
    dp_shard        0   0   1   1        whole                one piece at rest, whole while in use
    cp              all                  0  0  | 1  1         one piece at rest, whole while in use
    tp              all                  whole                one piece, always

Only dp_replicate and dp_shard make ranks read different samples; cp peers share samples and split
their tokens; tp peers see the same tokens and split the arithmetic.

Read ``train.py`` first. Then, in any order: ``mesh`` (who talks to whom), ``model`` and ``experts`` (same weights
under every layout), ``data`` and ``loader`` (whose rows), ``loss`` (one normalisation for all ranks), ``data_parallel``,
``context_parallel`` and ``attention``, ``tensor_parallel`` and ``collectives``, ``gradients``, ``checkpoint``.
"""

from __future__ import annotations
