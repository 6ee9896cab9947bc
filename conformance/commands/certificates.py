# SPDX-License-Identifier: Apache-2.0
"""``vllm-conformance report``, ``badge`` and ``verify``: what is done with certificates.

They import neither vLLM, torch nor a plugin.
"""

from __future__ import annotations

import json
from pathlib import Path

import click

from conformance.commands.console import make_console
from conformance.settings import UsageError


@click.command()
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False))
def badge(directory: Path) -> None:
    """Write badge.json and badge.svg from the certificates under DIRECTORY.

    A certificate that does not verify gets none.
    """
    from conformance.reporting import badge as badges
    from conformance.reporting import certificate, verification

    found = certificate.under(directory)
    for path, document in found:
        if wrong := verification.wrong(verification.of_document(document)):
            raise UsageError(f"{path} does not verify: {wrong[0].about}: {wrong[0].says}.")
    for path, document in found:
        badges.write(document, path.parent)
        click.echo(f"{path.parent}: {badges.label(document)} {badges.message(document)}")


@click.command()
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--draw",
    is_flag=True,
    help="Write what is drawn from them again, and a page that lists them all.",
)
@click.option("--json", "as_json", is_flag=True, help="The certificates, as a JSON list.")
def report(directory: Path, *, draw: bool, as_json: bool) -> int:
    """Show the certificates under DIRECTORY again.

    The exit status is that of the run that made them.
    """
    from conformance.reporting import certificate, folder, summary
    from conformance.reporting.session import status

    console = make_console()
    found = certificate.under(directory)
    documents = [document for _, document in found]
    if draw:
        for path, document in found:
            folder.draw(document, path.parent)
        # The folder of one certificate has its own page.
        if directory not in {path.parent for path, _ in found}:
            folder.draw_overview(dict(found), directory)
    if as_json:
        click.echo(json.dumps(documents, indent=2, ensure_ascii=False))
        return int(status(documents))
    for document in documents:
        console.print(summary.headline(document))
        summary.show(console, document)
        console.print()
    return int(status(documents))


@click.command()
@click.argument("certificate", type=click.Path(path_type=Path))
@click.option(
    "--source",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The plugin's source file, where it is not where the certificate says.",
)
@click.option("--json", "as_json", is_flag=True, help="The checks as JSON.")
def verify(certificate: Path, source: Path | None, *, as_json: bool) -> int:
    """Check that a certificate says what its rule results say.

    CERTIFICATE is a certificate.json, or a folder of certificates. Decides the verdict again from
    the rule results, and compares the rules with the catalogue, the digest with the plugin's
    source if that is at hand, and the badges and statements beside it with the certificate. Runs
    no code of the plugin.

    Exit status: 0 if nothing is wrong, else 1.
    """
    from conformance.reporting import certificate as certificates
    from conformance.reporting import verification

    paths = [certificate]
    if certificate.is_dir():
        paths = [path for path, _ in certificates.under(certificate)]
    checked = {str(path): verification.of_file(path, source=source) for path in paths}
    if as_json:
        import attrs

        told = {path: [attrs.asdict(check) for check in found] for path, found in checked.items()}
        click.echo(json.dumps(told, indent=2))
    else:
        signs = {"holds": "✓", "wrong": "✗", "unknown": "?"}
        for path, found in checked.items():
            click.echo(path)
            for check in found:
                click.echo(f"  {signs[check.state]} {check.about}: {check.says}")
    return int(any(verification.wrong(found) for found in checked.values()))
