# SPDX-License-Identifier: Apache-2.0
"""A certification, in the process of the caller: choosing checks, and running them in workers."""
