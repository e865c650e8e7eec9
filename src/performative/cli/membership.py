"""`performative federation invite | join | approve | expel | leave | rotate`: members on their own hosts."""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from performative.cli.output import (
    EXIT_CODES,
    Exit,
    Failure,
    Json,
    Reporter,
    check_out,
    failing,
    reporting,
    show_checks,
)

App = Annotated[Path, typer.Option("--app", help="The server's app folder.")]
Member = Annotated[Path, typer.Option("--app", help="The member's folder, as created by `join`.")]
Out = Annotated[Path | None, typer.Option(help="File to write; by default named after the member.")]
_HERE = Path(".")


def add_membership(federation: typer.Typer) -> None:
    """Add the commands to their group."""
    for command in (invite, join, approve, expel, leave, rotate, doctor):
        federation.command(epilog=EXIT_CODES)(command)


def invite(
    name: Annotated[str, typer.Argument(help="The member's name: letters, digits, - and _.")],
    app: App = _HERE,
    client: Annotated[int | None, typer.Option(help="Its number; by default, the lowest free one.")] = None,
    days: Annotated[float, typer.Option(help="Days until the invitation expires.")] = 14.0,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Write an invitation for a new member: the server's address, how to authenticate it, and the app.

    For a registered member, write an update with the new address, authority or app.
    """
    with _using(as_json) as reporter:
        from performative.live.app import load_app
        from performative.live.membership import rotation, server
        from performative.live.membership.papers import NAME, federation_fingerprint

        path = out or Path(f"{name}.invitation")
        site = rotation.server_site(app)
        if NAME.fullmatch(name):  # otherwise the path is not to blame
            _check_out(path)
        made = server.invite(app, name, load_app(app).clients, client=client, days=days, out=path)
        reporter.path("wrote ", path)
        secret = "it contains a token, so send it over a private channel" if made.token else "send it to the member"
        reporter.show(f"{name} is client {made.client} of {made.clients}; {secret}.")
        reporter.show(f"The app is {made.app_hash[:12]}; the server is at {site.address}.")
        read = federation_fingerprint(made.federation)
        reporter.show(f"The federation's key, which the member compares when it joins (--fingerprint): {read}")
        about = {"member": name, "client": made.client, "app": made.app_hash, "federation": made.federation}
        about |= {"federation_fingerprint": read}
        reporter.result({"status": "completed", "file": str(path), "new": bool(made.token), **about})


def join(
    invitation: Annotated[Path | None, typer.Argument(help="The file; by default, the one joined before.")] = None,
    app: Annotated[
        Path | None, typer.Option("--app", help="The member's folder; by default named after the member.")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="Folder of this member's table; remembered.")] = None,
    address: Annotated[str | None, typer.Option(help="New HOST:PORT of the server; remembered.")] = None,
    accept: Annotated[str | None, typer.Option(help="Hash of a changed app that you have reviewed.")] = None,
    fingerprint: Annotated[
        str | None,
        typer.Option(help="Fingerprint of the federation's key, as the server's owner read it out."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Join a federation from this host: first request registration, then, once approved, start this member's node.

    With a new invitation it creates this member's key, unpacks the app for you to review, and writes the request; run
    it again if that file was lost. Once the server's owner has approved, `join --app FOLDER` starts the node, which
    runs until `down` or `leave`.
    """
    with _using(as_json) as reporter:
        from performative.live.membership import host
        from performative.live.membership.papers import federation_fingerprint, read_invitation
        from performative.live.membership.server import read_address

        if address is not None:
            read_address(address)
        if invitation is None:
            folder = app or _HERE
            federation_fingerprint(host.read_record(host.member_site(folder))["federation"], fingerprint)
        else:
            made = read_invitation(invitation)
            federation_fingerprint(made.federation, fingerprint)
            folder = app or Path(made.name)
            kind = host.take(made, folder, accept)
            if kind == "new" or (kind == "known" and made.token and host.may_ask(folder)):
                later = {"--data": data, "--address": address}
                options = [word for name, value in later.items() if value is not None for word in (name, str(value))]
                _show_request(reporter, made, folder, kind == "known", options)
                return
        with reporter.errors.status("starting"):
            let_in = host.start(folder, data, address)
        found = host.member_status(folder)
        if not let_in:
            raise Failure(
                "the server rejects this node: its key is not approved yet or was revoked, the clocks of the two hosts "
                "differ by minutes, or the server has another certificate authority. The server's owner can see which "
                "with `federation status`.",
                Exit.FAILED,
                {"status": "refused", **found},
            )
        for line in host.member_lines(found):
            reporter.show(line)
        reporter.result({"status": "completed", **found})


def _show_request(reporter: Reporter, made: Any, folder: Path, again: bool, options: list[str]) -> None:
    """Write the request that answers an invitation, and say what to do with it."""
    from performative.live.membership import host
    from performative.live.membership.papers import JOIN, federation_fingerprint

    request, federation = Path(f"{made.name}.request"), federation_fingerprint(made.federation)
    read = host.write_request(folder, JOIN, request)
    reporter.path("wrote ", request)
    if again:
        reporter.show("The request is written again, with the same key: the server has not let this node in yet.")
    reporter.show(f"The federation's key is {federation}; compare it with what the server's owner reads out.")
    reporter.show(f"The app, {made.app_hash[:12]}, is in {folder}; review it before you continue.")
    reporter.show(f"Send {request} to the server's owner, and read out your key's fingerprint: {read}")
    start = shlex.join(["performative", "federation", "join", "--app", str(folder), *options])
    reporter.show(f"Once it is approved, start the node: {start}")
    about = {"member": made.name, "client": made.client, "fingerprint": read, "app": made.app_hash}
    about |= {"federation_fingerprint": federation, "again": again}
    reporter.result({"status": "completed", "state": "requested", "request": str(request), **about})


def approve(
    request: Annotated[Path, typer.Argument(help="The file that the member sent.")],
    app: App = _HERE,
    fingerprint: Annotated[str | None, typer.Option(help="What the member read out; rejected if it differs.")] = None,
    as_json: Json = False,
) -> None:
    """Register the key of an invited member, or remove one that leaves; either is recorded in the signed log."""
    with _using(as_json) as reporter:
        from performative.live.membership import server

        found = server.approve(app, request, fingerprint)
        if found["what"] == "approved":
            reporter.show(f"{found['member']} is client {found['client']}; its key is {found['fingerprint']}.")
            if fingerprint is None:
                reporter.show("Compare this with what the member reads out; `expel` revokes it.")
        else:
            reporter.show(f"{found['member']}, client {found['client']}, is no longer a member.")
        reporter.result({"status": "completed", **found})


def expel(
    name: Annotated[str, typer.Argument(help="The member's name.")], app: App = _HERE, as_json: Json = False
) -> None:
    """Remove a member now: its node is rejected immediately, and stops. Its number becomes free."""
    with _using(as_json) as reporter:
        from performative.live.membership import server

        found = server.expel(app, name)
        reporter.show(f"{name}: {found['what']}.")
        reporter.result({"status": "completed", **found})


def leave(app: Member = _HERE, out: Out = None, as_json: Json = False) -> None:
    """Stop this member's node now and destroy its key. Send the file this writes to the server's owner."""
    with _using(as_json) as reporter:
        from performative.live.membership import host

        name = host.read_record(host.member_site(app))["name"]
        path = out or Path(f"{name}.leave")
        _check_out(path)
        host.leave(app, path)
        reporter.path("wrote ", path)
        reporter.show(f"{name} has left: its node is stopped and its key is deleted. `approve` with that file logs it.")
        reporter.result({"status": "completed", "member": name, "request": str(path)})


def rotate(
    app: App = _HERE,
    authority_key: Annotated[Path | None, typer.Option(help="The authority's key, if it is kept elsewhere.")] = None,
    new_authority: Annotated[bool, typer.Option("--new-authority", help="Create a new authority.")] = False,
    as_json: Json = False,
) -> None:
    """Renew the server's certificate under the same authority; members need not do anything.

    With --new-authority every member needs a new file from `invite` before it can reconnect.
    """
    with _using(as_json) as reporter:
        from performative.live.app import load_app, up
        from performative.live.membership import rotation, server

        found = rotation.rotate(app, authority_key, new_authority)
        if found["restart"]:
            with reporter.errors.status("starting"):
                up(app, load_app(app))
        act = "" if found["new_authority"] else " Members need not act."
        reporter.show(f"The server's certificate is valid until {found['until']}.{act}")
        if found["new_authority"]:
            names = [one["member"] for one in server.members(app)]
            reporter.show(f"Send each member a new file, `federation invite NAME`: {', '.join(names) or 'nobody yet'}.")
        reporter.result({"status": "completed", **found})


def doctor(
    app: Annotated[Path, typer.Option("--app", help="The server's app folder, or a member's folder.")] = _HERE,
    as_json: Json = False,
) -> None:
    """Diagnose this host: secrets, clocks, versions, reachability, disk, certificates, open ports.

    For the server and for members. Exits with code 1 if something is wrong; each line gives the remedy.
    """
    with _using(as_json) as reporter:
        from performative.live.membership.doctor import examine

        show_checks(reporter, examine(app))


def set_address(app: Path, address: str, listen: str | None) -> bool:
    """Set where members reach the server; True if the address changed."""
    from performative.live.membership import server

    return server.set_address(app, address, listen)


def show_server(reporter: Reporter, running: dict[str, Any], moved: bool) -> None:
    """What `up` prints for a server with members on other hosts."""
    reporter.show(f"The server is up; {running['clients']} members reach it at {running['address']}.")
    if why := running.get("reissued"):
        reporter.show(f"The server's certificate {why}; the same authority has issued a new one. Members need not act.")
    if moved:
        reporter.show(
            "Next: performative federation invite NAME, once for each member, including those that have the server's "
            "old address."
        )
    reporter.result({"status": "completed", **running})


def _check_out(out: Path) -> None:
    """Any name will do; whether it can be written is known before anything changes."""
    check_out(out, "a file", out.suffix)


@contextmanager
def _using(as_json: bool) -> Iterator[Reporter]:
    """Wrap a command's body: errors become one line and the right exit code."""
    with reporting(as_json) as reporter:
        from performative.live.loopback.commands import FederationError

        with failing((ValueError, FileNotFoundError), (FederationError, ModuleNotFoundError)):
            yield reporter
