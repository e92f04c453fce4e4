"""Opens JupyterLab on a workspace: on this machine only, behind a random token, with nbgrader's Validate.

The server runs in this very process, so that the token is in no command line that others can list, and one Ctrl-C ends
everything. Jupyter's settings come from files in the workspace: the user's own server settings (a password, another
root folder, switched-off extensions) would break the lab and are left out, the look of JupyterLab (theme, shortcuts)
is the user's as always.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import signal
import socket
import sys
from pathlib import Path
from typing import Any

from lab.workspace import OURS, put

ADDRESS = "127.0.0.1"
USUAL_PORT = 8888
LONGEST_CELL = 300  # seconds; Validate runs the judge in a notebook's cells

SERVER_CONFIG = {
    "ServerApp": {
        "jpserver_extensions": {
            "nbgrader.server_extensions.validate_assignment": True,
            "nbgrader.server_extensions.assignment_list": False,
            "nbgrader.server_extensions.course_list": False,
            "nbgrader.server_extensions.formgrader": False,
        }
    },
    # Or else every user of this machine could read what kernels print.
    "KernelManager": {"transport_encryption": "auto"},
    "LabApp": {"news_url": None, "check_for_updates_class": "jupyterlab.NeverCheckForUpdate"},
}

PAGE_CONFIG = {
    "disabledExtensions": {
        "@jupyterlab/apputils-extension:announcements": True,
        "@jupyter/nbgrader:assignment-list": True,
        "@jupyter/nbgrader:course-list": True,
        "@jupyter/nbgrader:create-assignment": True,
        "@jupyter/nbgrader:formgrader": True,
    }
}

NBGRADER_CONFIG = f"""\
# Written by `recovery-lab open` at every start.
c = get_config()
c.KernelManager.transport_encryption = "auto"
c.Execute.timeout = {LONGEST_CELL}
"""


class PortTaken(Exception):
    """The port that was asked for cannot be had."""


def check_port(port: int) -> None:
    """Raise PortTaken unless this process can listen on `port` now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((ADDRESS, port))
        except OSError as error:
            reason = "is taken" if error.errno == errno.EADDRINUSE else f"cannot be used ({error.strerror})"
            raise PortTaken(f"port {port} {reason}: choose another with --port, or leave it out") from error


def write_config(workspace: Path) -> Path:
    """Write Jupyter's settings into the workspace; returns their folder."""
    folder = workspace / OURS / "jupyter"
    put(folder / "jupyter_server_config.json", json.dumps(SERVER_CONFIG, indent=1).encode())
    put(folder / "labconfig" / "page_config.json", json.dumps(PAGE_CONFIG, indent=1).encode())
    put(folder / "nbgrader_config.py", NBGRADER_CONFIG.encode())
    return folder


def use_config(folder: Path) -> None:
    """Make Jupyter, and whatever it starts, read its settings from `folder` first, then from the environment's."""
    os.environ["JUPYTER_CONFIG_PATH"] = os.pathsep.join(
        filter(None, [str(folder), os.environ.get("JUPYTER_CONFIG_PATH")])
    )
    os.environ["JUPYTER_CONFIG_DIR"] = str(folder)
    # Kernels and extensions of this environment before those that the user has elsewhere under the same names.
    os.environ["JUPYTER_PREFER_ENV_PATH"] = "1"
    commands = Path(sys.executable).parent
    os.environ["PATH"] = os.pathsep.join(filter(None, [str(commands), os.environ.get("PATH")]))


def serve(workspace: Path, notebook: str, port: int | None, browser: bool) -> None:
    """Run JupyterLab on `workspace`, starting with `notebook`, until it is told to stop."""
    from jupyter_core.paths import jupyter_config_dir

    users_settings = Path(os.environ.get("JUPYTERLAB_SETTINGS_DIR", Path(jupyter_config_dir(), "lab", "user-settings")))
    use_config(write_config(workspace))
    os.chdir(workspace)  # nbgrader looks for its settings in the current folder, too
    from jupyterlab.labapp import LabApp

    token = secrets.token_hex(24)
    page = f"/lab/tree/{notebook}"
    server = LabApp.initialize_server(
        argv=[
            f"--ServerApp.ip={ADDRESS}",
            f"--ServerApp.port={USUAL_PORT if port is None else port}",
            f"--ServerApp.port_retries={50 if port is None else 0}",
            f"--ServerApp.root_dir={workspace}",
            f"--ServerApp.open_browser={browser}",
            f"--ServerApp.allow_root={os.geteuid() == 0}",
            "--ServerApp.log_level=ERROR",
            "--LabApp.log_level=ERROR",
            f"--IdentityProvider.token={token}",
            f"--LabApp.default_url={page}",
            f"--LabApp.user_settings_dir={users_settings}",
            f"--LabApp.workspaces_dir={workspace / OURS / 'layouts'}",
        ]
    )
    end_when_told(server)
    server.io_loop.add_callback(
        announce, f"http://{ADDRESS}:{server.port}{server.base_url.rstrip('/')}{page}?token={token}"
    )
    server.start()


def announce(url: str) -> None:
    print(f"Recovery Lab is open at {url} (Ctrl-C ends it)", flush=True)


def end_when_told(server: Any) -> None:
    """Ctrl-C, or closing the terminal, ends kernels and server in order, unasked; the second time, at once."""

    def end(number: int, frame: Any) -> None:
        signal.signal(number, signal.SIG_DFL)
        server.stop(from_signal=True)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end)
