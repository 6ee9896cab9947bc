# SPDX-License-Identifier: Apache-2.0
"""What workers ask of either generation: is a class one of ours, its trial, and its replay."""
