# SPDX-License-Identifier: Apache-2.0
"""What any client may send: values, how they reach an engine, and what they do to a plugin."""
