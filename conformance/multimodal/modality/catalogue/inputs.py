# SPDX-License-Identifier: Apache-2.0
"""Rules about what is taken, what is refused, and what that may cost."""

from __future__ import annotations

from conformance.multimodal.modality.catalogue.sources import (
    ALL,
    BEFORE,
    CLIENT,
    FRONT_END,
    HASHED,
    HEADERS,
    MEDIA,
    SHARED,
    article,
    library,
)
from conformance.rules import Rule, leaks, section, sentence

_PARSE = article("def parse_input(self, data): convert API format to internal representation")
_OWNER = library("arrays.py:frozen", "an item's arrays are copies that nobody can change")

RULES = section(
    "Input",
    Rule(
        id="MM-50",
        title="What is promised is taken",
        statement=(
            "Items that the profile calls valid, ordinary ones in the forms that it names, and "
            "files of the encodings that limits.encodings names, come to their end; no ordinary "
            "item raises anything but a refusal."
        ),
        sources=(sentence(_PARSE), article("Parse: URL/base64, URL/file, WAV/MP3")),
        hint="Name in limits.encodings what is decoded, and nothing else.",
        evidence=ALL,
    ),
    Rule(
        id="MM-51",
        title="A file is the same item in every form",
        statement=(
            "Bytes, base64 and data URLs of one content, as far as they are taken, give the same "
            "arrays, the same counts and the same hash."
        ),
        sources=(
            article("URL/base64 to PIL Image"),
            library("sources.py:MediaAccess.load", "the content of a file, from any of the forms"),
        ),
        hint="Turn every form into bytes first, and hash these.",
    ),
    Rule(
        id="MM-52",
        title="Arrays give what a file of the same content gives",
        statement=(
            "Pixels, samples and points are the same item as an array and in a lossless file, and "
            "are estimated as exactly."
        ),
        sources=(
            library("images.py:ImagePlugin.decode", "files and pixels end in one kind of picture"),
        ),
        hint=(
            "Look for channels in another order, and for values that are scaled once and not twice."
        ),
    ),
    Rule(
        id="MM-53",
        title="Whatever is sent, only the client's error is raised",
        statement=(
            "Data of any type, broken files and bytes of no kind are taken or raise InputError in "
            "any method; no other exception leaves the plugin."
        ),
        sources=(CLIENT,),
        hint=(
            "Decode within reference_plugins.modality.errors.decoding, or catch what "
            "decoders raise; refuse with reference_plugins.modality.InputError, also in validate."
        ),
        evidence=ALL,
    ),
    Rule(
        id="MM-54",
        title="What is no item is refused",
        statement=(
            "Nothing, numbers, empty and foreign files, arrays without values and what the profile "
            "calls invalid are refused with InputError."
        ),
        sources=(article("Check size, format, count limits"), CLIENT),
        hint="Do not put a blank item in the place of one that cannot be read.",
        evidence=ALL,
    ),
    Rule(
        id="MM-55",
        title="A file that is cut off is refused",
        statement=(
            "A file without its second half is refused with InputError, and so is what is packed, "
            "as gzip or zip, in an item of a profile."
        ),
        sources=(library("errors.py:decoding", "whatever a decoder raises on a broken file"),),
        hint="Compare what was decoded with what the header says.",
    ),
    Rule(
        id="MM-56",
        title="Small requests stay small",
        statement=(
            "What is small to send and large to read, by its content, header, proportions, rate or "
            "extent, is refused or read within 512 MiB of memory and 10 s of processor "
            "time: no item fills or stalls the server."
        ),
        sources=(article("under-estimation can cause OOM"), HEADERS, FRONT_END),
        hint=(
            "Judge the size that a header declares before anything is made of it, and look for "
            "repetitions within repetitions in patterns."
        ),
    ),
    Rule(
        id="MM-57",
        title="Nothing is decoded before preprocess",
        statement=(
            "parse_input, validate and estimate_tokens take no memory for what a file holds."
        ),
        sources=(HEADERS, BEFORE),
        hint="Keep the bytes in the item, and decode them in preprocess.",
    ),
    Rule(
        id="MM-58",
        title="Clients cannot make the plugin read this machine or its network",
        statement=(
            "Made without arguments, the plugin reads no file that a client names, and connects "
            "to no service of this machine, however its address is written."
        ),
        sources=(
            library("fetching.py:Fetcher", "addresses are judged where the connection is made"),
            library("sources.py:MediaAccess.local_folders", "by default no local file"),
            leaks(MEDIA),
        ),
        hint="Fetch with MediaAccess, or leave fetching to the server.",
    ),
    Rule(
        id="MM-59",
        title="What a client handed over is left as it is",
        statement=(
            "Arrays, mappings and buffers are after an item was served what they were before."
        ),
        sources=(_OWNER,),
        hint="Look for operations in place, such as array /= 255, and for pop.",
    ),
    Rule(
        id="MM-60",
        title="An item does not follow an array of the client",
        statement=(
            "An item that was parsed stays what it is when the array it came from is changed."
        ),
        sources=(_OWNER,),
        hint="Copy arrays in parse_input: the hash was made of what they held then.",
    ),
    Rule(
        id="MM-61",
        title="Equal items have one hash",
        statement=(
            "content_hash is a text that is not empty, and the same for equal data in every "
            "instance and every process."
        ),
        sources=(
            HASHED,
            library(
                "fingerprints.py:fingerprint", "the same in every process and on every machine"
            ),
        ),
        hint="hash() of texts and bytes differs between processes; so do id() and times.",
    ),
    Rule(
        id="MM-62",
        title="The hash covers everything that counts",
        statement="Two items with one content_hash give the same arrays and the same counts.",
        sources=(
            HASHED,
            library(
                "fingerprints.py",
                "what is left out of the hash is served from somebody else's item",
            ),
            leaks(SHARED),
        ),
        hint=(
            "Hash shape, dtype, rate, palette and orientation with the bytes, and all of the bytes."
        ),
        resembles=("vllm-project/vllm#49975", "ai-dynamo/dynamo#8340"),
        evidence=ALL,
    ),
)
