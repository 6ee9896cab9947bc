# SPDX-License-Identifier: Apache-2.0
"""Rules about what a plugin is, and how many items it lets a prompt have."""

from __future__ import annotations

from conformance.multimodal.modality.catalogue.sources import (
    ALL,
    BEFORE,
    FRONT,
    FRONT_END,
    article,
    library,
)
from conformance.rules import Rule, changes, section, sentence
from conformance.watching import sharing

_INTERFACE = library(
    "interface.py:MultiModalPlugin", "a class needs these members and no base class"
)
_MAXIMUM = article(
    "def get_max_per_prompt(self, model_config): how many of this modality per request?"
)

RULES = section(
    "Registration",
    Rule(
        id="MM-41",
        title="The plugin can be made and registered",
        statement=(
            "The target imports, is a class, can be made without arguments, has every member of "
            "the interface as a plain function or attribute, and a registry takes it."
        ),
        sources=(sentence(article("Register with MultiModalRegistry")), _INTERFACE),
        hint="Write the six methods and modality, part_types and limits; nothing is awaited.",
        evidence=ALL,
    ),
    Rule(
        id="MM-42",
        title="The modality and its part types are names that do not change",
        statement=(
            "modality is a text of letters, digits and underscores, part_types a sequence of "
            "texts; both are the same for every instance and after items were served."
        ),
        sources=(
            article("max_image_per_prompt=5"),
            library("registry.py:MultiModalRegistry.register_plugin", "both are read once"),
        ),
        hint='One part type is a tuple as well: part_types = ("image_url",).',
    ),
    Rule(
        id="MM-43",
        title="Every call returns",
        statement="No call hangs, exits, or ends the process, whatever the plugin is given.",
        sources=(article("they all flow through the same engine"), FRONT_END),
        hint="Look for sys.exit, for loops over what a header promises, and for native decoders.",
        evidence=ALL,
    ),
    Rule(
        id="MM-44",
        title="get_max_per_prompt keeps to what is allowed",
        statement=(
            "get_max_per_prompt returns a whole number from 0 to the smaller of what the model "
            "declares and what its deployment allows."
        ),
        sources=(_MAXIMUM, article("Image count <= limit_mm_per_prompt.image")),
        hint="Return model_config.get_max_per_prompt(self.modality), or less.",
    ),
    Rule(
        id="MM-45",
        title="get_max_per_prompt does not depend on earlier requests",
        statement=(
            "The same configuration gets the same number, whatever was asked or served before."
        ),
        sources=(_MAXIMUM, changes(FRONT)),
        hint="Count nothing in the plugin: the pipeline counts the items of each prompt.",
    ),
    Rule(
        id="MM-46",
        title="Asking for limits costs nothing",
        statement="get_max_per_prompt returns within 50 ms: it is asked before anything is parsed.",
        sources=(BEFORE,),
        hint="Load what is needed in the constructor, or when the first item is preprocessed.",
    ),
    Rule(
        id="MM-47",
        title="validate obeys the limits that it is given",
        statement=(
            "Where every number of the limits whose name begins with max is next to nothing, "
            "validate refuses something."
        ),
        sources=(
            sentence(article("def validate(self, data, limits): check size, format, count limits")),
            library(
                "processor.py:MultiModalProcessor.validate", "deployments have limits of their own"
            ),
        ),
        hint="Compare with the argument limits, not with self.limits.",
    ),
    Rule(
        id="MM-48",
        title="validate judges every item",
        statement="An item that is refused alone is refused wherever it stands among others.",
        sources=(
            library(
                "interface.py:MultiModalPlugin.validate",
                "data holds all items of this modality in the order of the request",
            ),
            sentence(article("Image too large? Audio too long? Too many inputs?")),
        ),
        hint="Go through all of data, and return from within the loop never.",
    ),
    Rule(
        id="MM-49",
        title="validate changes nothing",
        statement=(
            "Items, the list of them, and the limits are after validate what they were before."
        ),
        sources=(
            library("interface.py:MultiModalPlugin.validate", "refuses items, and returns nothing"),
        ),
        hint="Refuse an item that is too large; what it is made into, preprocess decides.",
    ),
    sharing.leaves_others_alone(
        "MM-80", *sharing.FRONT_END, article("runs on CPU"), where=sharing.IN_FRONT_END
    ),
)
