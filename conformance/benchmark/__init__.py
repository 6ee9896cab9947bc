# SPDX-License-Identifier: Apache-2.0
"""What a plugin costs: single steps, and the throughput of engines and servers with it.

Whatever is compared takes turns within one run, and what a run finds is more than the same thing
compared with itself showed in that run.
"""
