"""`performative federation invite | join | approve | expel | leave | rotate`: members on hosts of their own."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from performative.cli.output import EXIT_CODES, Exit, Failure, Json, Reporter, failing, reporting

App = Annotated[Path, typer.Option("--app", help="The server's app folder.")]
Member = Annotated[Path, typer.Option("--app", help="The member's folder, as `join` makes it.")]
Out = Annotated[Path | None, typer.Option(help="File to write, instead of one named after the member.")]
_HERE = Path(".")


def add_membership(federation: typer.Typer) -> None:
    """Add the commands to their group."""
    for command in (invite, join, approve, expel, leave, rotate, doctor):
        federation.command(epilog=EXIT_CODES)(command)


def invite(
    name: Annotated[str, typer.Argument(help="The member's name: letters, digits, - and _.")],
    app: App = _HERE,
    client: Annotated[int | None, typer.Option(help="Its number; without it, the lowest that is free.")] = None,
    days: Annotated[float, typer.Option(help="Days until the invitation expires.")] = 14.0,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Write a file for a new member: where the server is, how to recognise it, and the app.

    For a member that is registered: one that brings it up to date, with a new address, authority or app.
    """
    with _using(as_json) as reporter:
        from performative.live.app import load_app
        from performative.live.membership import server

        path = out or Path(f"{name}.invitation")
        site = server.server_site(app)
        made = server.invite(app, name, load_app(app).clients, client=client, days=days, out=path)
        reporter.path("wrote ", path)
        secret = (
            "it holds a token, so send it by a way that others cannot read" if made.token else "send it to the member"
        )
        reporter.show(f"{name} is client {made.client} of {made.clients}; {secret}.")
        reporter.show(f"The app is {made.app_hash[:12]}; the server is at {site.address}.")
        about = {"member": name, "client": made.client, "app": made.app_hash, "federation": made.federation}
        reporter.result({"status": "completed", "file": str(path), "new": bool(made.token), **about})


def join(
    invitation: Annotated[Path | None, typer.Argument(help="The file; without it, what was joined before.")] = None,
    app: Annotated[
        Path | None, typer.Option("--app", help="The member's folder; without it, one named after the member.")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="Folder of this member's table; remembered.")] = None,
    address: Annotated[str | None, typer.Option(help="HOST:PORT, where the server has moved to; remembered.")] = None,
    accept: Annotated[str | None, typer.Option(help="The hash of a changed app that you have read.")] = None,
    as_json: Json = False,
) -> None:
    """Join a federation from this host: first a request to be registered, then, once approved, this member's node.

    The first call makes this member's key, unpacks the app for you to read, and writes the request. Call it again when
    the server's owner has approved: it starts the node, and nothing else. The node stays until `down` or `leave`.
    """
    with _using(as_json) as reporter:
        from performative.live.membership import host
        from performative.live.membership.papers import JOIN, read_invitation
        from performative.live.membership.server import read_address

        if address is not None:
            read_address(address)
        if invitation is None:
            folder = app or _HERE
            host.member_site(folder)
        else:
            made = read_invitation(invitation)
            folder = app or Path(made.name)
            if host.take(made, folder, accept) == "new":
                request = Path(f"{made.name}.request")
                read = host.write_request(folder, JOIN, request)
                reporter.path("wrote ", request)
                reporter.show(f"The app, {made.app_hash[:12]}, is in {folder}; read it before you go on.")
                reporter.show(f"Send {request} to the server's owner, and read out your key's fingerprint: {read}")
                reporter.show("Once it is approved, call this command again.")
                about = {"member": made.name, "client": made.client, "fingerprint": read, "app": made.app_hash}
                reporter.result({"status": "completed", "state": "requested", "request": str(request), **about})
                return
        with reporter.errors.status("starting"):
            let_in = host.start(folder, data, address)
        found = host.member_status(folder)
        if not let_in:
            raise Failure(
                "the server does not let this node in: its key is not approved yet, or not any more, or the clocks of "
                "both hosts differ by minutes, or the server has another certificate authority. The server's owner can "
                "see which: `federation status` there.",
                Exit.FAILED,
                {"status": "refused", **found},
            )
        for line in host.member_lines(found):
            reporter.show(line)
        reporter.result({"status": "completed", **found})


def approve(
    request: Annotated[Path, typer.Argument(help="The file that the member sent.")],
    app: App = _HERE,
    fingerprint: Annotated[str | None, typer.Option(help="What the member read out; refused where it differs.")] = None,
    as_json: Json = False,
) -> None:
    """Register the key of a member that was invited, or take out one that leaves; a line in the signed log says so."""
    with _using(as_json) as reporter:
        from performative.live.membership import server

        found = server.approve(app, request, fingerprint)
        if found["what"] == "approved":
            reporter.show(f"{found['member']} is client {found['client']}; its key is {found['fingerprint']}.")
            if fingerprint is None:
                reporter.show("Compare this with what the member reads out; `expel` takes it back.")
        else:
            reporter.show(f"{found['member']}, client {found['client']}, is no member any more.")
        reporter.result({"status": "completed", **found})


def expel(
    name: Annotated[str, typer.Argument(help="The member's name.")], app: App = _HERE, as_json: Json = False
) -> None:
    """Shut a member out now: its node is refused from this moment on, and stops. Its number is free again."""
    with _using(as_json) as reporter:
        from performative.live.membership import server

        found = server.expel(app, name)
        reporter.show(f"{name}: {found['what']}.")
        reporter.result({"status": "completed", **found})


def leave(app: Member = _HERE, out: Out = None, as_json: Json = False) -> None:
    """Stop this member's node now and destroy its key. Send the file that it writes to the server's owner."""
    with _using(as_json) as reporter:
        from performative.live.membership import host

        name = host.read_record(host.member_site(app))["name"]
        path = out or Path(f"{name}.leave")
        host.leave(app, path)
        reporter.path("wrote ", path)
        reporter.show(f"{name} has left: its node is stopped and its key is gone. `approve` of that file logs it.")
        reporter.result({"status": "completed", "member": name, "request": str(path)})


def rotate(
    app: App = _HERE,
    authority_key: Annotated[Path | None, typer.Option(help="The authority's key, where it is kept elsewhere.")] = None,
    new_authority: Annotated[bool, typer.Option("--new-authority", help="Begin with a new authority.")] = False,
    as_json: Json = False,
) -> None:
    """Renew the server's certificate under the same authority; members notice nothing.

    With --new-authority every member needs a new file from `invite` before it can come back.
    """
    with _using(as_json) as reporter:
        from performative.live.app import load_app, up
        from performative.live.membership import server

        found = server.rotate(app, authority_key, new_authority)
        if found["restart"]:
            with reporter.errors.status("starting"):
                up(app, load_app(app))
        reporter.show(f"The server's certificate is good until {found['until']}.")
        if new_authority:
            names = [one["member"] for one in server.members(app)]
            reporter.show(f"Send each member a new file, `federation invite NAME`: {', '.join(names) or 'nobody yet'}.")
        reporter.result({"status": "completed", **found})


def doctor(
    app: Annotated[Path, typer.Option("--app", help="The server's app folder, or a member's folder.")] = _HERE,
    as_json: Json = False,
) -> None:
    """Look for what is wrong here: secrets, clocks, versions, reachability, disk, certificates, open ports.

    For the server and for members. Ends with code 1 where something is wrong; each line says the remedy.
    """
    with _using(as_json) as reporter:
        from performative.live.membership.doctor import examine

        found = examine(app)
        for check in found:
            reporter.show(f"{'wrong' if check.wrong else 'fine '}  {check.name}: {check.found}{_remedy(check.remedy)}")
        facts = {"checks": [{"name": c.name, "found": c.found, "remedy": c.remedy} for c in found]}
        if count := sum(check.wrong for check in found):
            raise Failure(f"{count} of {len(found)} checks found something wrong.", Exit.FAILED, facts)
        reporter.result({"status": "completed", **facts})


def _remedy(text: str) -> str:
    return f". Remedy: {text}" if text else ""


def set_address(app: Path, address: str, listen: str | None) -> bool:
    """Where members find the server; True where it is another place than before."""
    from performative.live.membership import server

    return server.set_address(app, address, listen)


def show_server(reporter: Reporter, running: dict[str, Any], moved: bool) -> None:
    """What `up` says of a server for members on other hosts."""
    reporter.show(f"The server is up; {running['clients']} members find it at {running['address']}.")
    if moved:
        reporter.show("Next: performative federation invite NAME, once for each member, also for those that know the")
        reporter.show("server at another address.")
    reporter.result({"status": "completed", **running})


@contextmanager
def _using(as_json: bool) -> Iterator[Reporter]:
    """The commands' body: what is wrong becomes one line and the right code."""
    with reporting(as_json) as reporter:
        from performative.live.loopback.commands import FederationError

        with failing((ValueError, FileNotFoundError), (FederationError, ModuleNotFoundError)):
            yield reporter
