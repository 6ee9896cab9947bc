# SPDX-License-Identifier: Apache-2.0
"""The modality library: `modality.deployments` and `modality.peers` are what its tests share."""
