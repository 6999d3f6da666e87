"""Infra: opens a home and wires the layers. The only place that knows all of them."""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, cast

from agent_infra import background
from agent_infra.actions import (
    ActionLibrary,
    EvidenceStore,
    Orchestrator,
    Outbox,
    OutsideTools,
    Secrets,
    ToolRegistry,
    read_prices,
)
from agent_infra.actions.executors import ExecutorPool, LocalExecutor, ProcessExecutor
from agent_infra.actions.language import ProgramCache, cache_folder
from agent_infra.clock import Clock, new_ulid
from agent_infra.config import Project, Settings, default_home, find_project, load_settings
from agent_infra.documents import read_documents
from agent_infra.errors import HomeClosed, OwnerUnreachable, SchemaInvalid, SettingsConflict, StoreLocked
from agent_infra.expressions import compile_expression
from agent_infra.observability import get_logger
from agent_infra.platform import GpuProbe, NvmlProbe
from agent_infra.rewards import USER_RULES, RewardWeaver, RuleWatcher, WeaverParts, WovenReward, sources_from_config
from agent_infra.scheduler import GDEPScheduler, KnowledgeBase, RunResult, SchedulerParts
from agent_infra.server import (
    Client,
    HomeSocket,
    RemoteBackend,
    RemoteBlobs,
    RemoteSchemas,
    open_socket,
    socket_of,
    target_of,
)
from agent_infra.state import (
    Backend,
    Collected,
    Home,
    Janitor,
    LocalBackend,
    Node,
    Retention,
    SchemaBroker,
    StateGraph,
    caused_by_everywhere,
    collect_all,
    fit_store,
    open_home,
)

_lock = threading.RLock()
_open: dict[Path, Infra] = {}
_default: dict[Path, Infra] = {}
_log = get_logger(__name__)
_JOIN_WAIT: Final = 2.0
"""Seconds in which the owner of a home that is just being opened or closed may begin to listen, or let go."""


class Infra:
    """An open home with its layers. Get one from `Infra.open()`; use it in a `with`, or close it.

    session(id)        layer 1: a session's graph; `schemas`, `blobs`
    tools, actions     layer 2: what can be called, under which contracts; `evidence`
    weaver             layer 3: signals in, rewards out
    scheduler, run()   layer 4: goals to plans to results; `knowledge`
    """

    def __init__(
        self, home: Path, project: Project, settings: Settings, *, clock: Clock | None, gpus: GpuProbe | None
    ) -> None:
        self.home = home
        self.project = project
        self.settings = settings
        self._users = 0
        self._pid = os.getpid()
        self._socket: HomeSocket | None = None
        try:
            self._home = self._open_home(settings, clock)
        except BaseException:
            self._hang_up()
            raise
        try:
            self._wire(gpus or NvmlProbe())
            self._load()
            self._janitor = self._hire()
            if self.evidence.outbox is not None:
                self.evidence.outbox.start()
        except BaseException:
            self._hang_up()
            self._home.close()
            raise

    def _open_home(self, settings: Settings, clock: Clock | None) -> Home:
        fitted = fit_store(settings.state.rocksdb)
        rocksdb = fitted.settings
        if fitted.notes:
            _log.warning("store_fitted", reasons=list(fitted.notes))
        return open_home(
            self.home,
            clock=clock,
            durability=settings.durability,
            undeclared=settings.state.undeclared_types,
            write_buffer_mb=rocksdb.write_buffer_size,
            max_open_files=rocksdb.max_open_files,
            compression=rocksdb.compression,
            blob_budget_mb=settings.state.blob_budget_mb,
            when_owned=self._listen,
        )

    def _listen(self) -> None:
        """Let other processes knock from the moment that the home is ours; `_serve` opens once it is wired."""
        self._socket = open_socket(self.home)

    def _serve(self) -> None:
        """Answer those who knock, from the first `open` on."""
        if self._socket is not None and self._users == 1:
            self._socket.serve(self)

    def _hang_up(self) -> None:
        if self._socket is not None:
            self._socket.close()

    def _wire(self, gpus: GpuProbe) -> None:
        """Put the layers together, lowest first."""
        self.engine = self._home.engine
        self.backend: Backend = LocalBackend(self.engine)
        self.blobs = self._home.blobs
        self.schemas = self.engine.schemas
        self.tools = ToolRegistry()
        self.evidence = self._evidence_store(gpus)
        self.secrets = Secrets(self.home / "secrets")
        project, registry, secrets = self.project, self.tools, self.secrets
        self._outside = OutsideTools(
            project.mcp, project.containers, root=project.root, home=self.home, registry=registry, secrets=secrets
        )
        workers = ProcessExecutor(memory_limit_mb=self.settings.memory_limit_mb, gpu_memory=gpus.held)
        self._pool = ExecutorPool([LocalExecutor(), workers, *self._outside.executors])
        orchestrator = Orchestrator(self.engine, self.tools, self._pool, self.evidence, self.secrets)
        programs = ProgramCache(cache_folder(self.home))
        self.actions = ActionLibrary(self.tools, orchestrator, self.evidence, schemas=self.schemas, cache=programs)
        self.weaver = RewardWeaver(WeaverParts(self.engine, self.blobs, rules_beside=(USER_RULES.expanduser(),)))
        self._watcher = RuleWatcher(self.weaver.rule_paths, self.weaver.reload_rules, self.settings.rewards.watch_rules)
        self.knowledge = KnowledgeBase()
        self.scheduler = GDEPScheduler(SchedulerParts(self.engine, self.actions, self.knowledge, gpus, project.root))

    def _evidence_store(self, gpus: GpuProbe) -> EvidenceStore:
        """Evidence, with the table of prices and the IPFS node that the settings name."""
        asked, folder = self.settings.evidence, self.home / "ipfs"
        prices = read_prices(self.project.root / asked.prices) if asked.prices else None
        store = EvidenceStore(self.blobs, gpus=gpus, prices=prices, folder=folder, ipfs=asked.ipfs or None)
        if asked.ipfs:
            store.outbox = Outbox(folder, asked.ipfs, store.blocks, most=asked.ipfs_queue, retry=asked.ipfs_retry)
        return store

    def _retention(self) -> Retention:
        """The retention that the settings ask for."""
        asked = self.settings.state.retention
        max_bytes = asked.max_mb << 20 if asked.max_mb else None
        return Retention(asked.keep_last or None, asked.max_age or None, max_bytes, asked.abandoned_after or None)

    def _hire(self) -> Janitor | None:
        """The thread that applies retention in the background, where the settings ask for one."""
        every = self.settings.state.retention.every
        if not every:
            return None
        janitor = Janitor(self.engine, self._retention(), every)
        janitor.start()
        return janitor

    def _load(self) -> None:
        """Bring in what the project's folders hold. Raises what is wrong in them: nothing is left out in silence."""
        project = self.project
        self.tools.load_entry_points()
        for path in project.tools:
            self.tools.load_module(path)
        if not project.tools:
            self.tools.searched.append(f"{project.root / 'tools.py'} (not there)")
        self._outside.load()
        if project.schemas:
            self._load_schemas(project.schemas)
        if project.actions:
            self.actions.load(project.actions, postpone=True)
        if project.knowledge:
            self.knowledge.load(project.knowledge)
        if project.rules:
            self.weaver.load_rules(project.rules)
            if self.settings.rewards.watch_rules:
                self._watcher.start()
        for source in sources_from_config(project.sources, secret=self.secrets.get):
            self.weaver.add_source(source)

    def _load_schemas(self, folder: Path) -> None:
        """`schemas/<type>.json` or `.yaml` declares the node type of its name."""
        files = (
            [folder]
            if folder.is_file()
            else sorted(p for p in folder.iterdir() if p.suffix in (".json", ".yaml", ".yml"))
        )
        for file in files:
            data = read_documents(file)[0].data
            if not isinstance(data, dict | bool):
                raise SchemaInvalid(f"{file.name} holds no schema", where=str(file), mend="A schema is a JSON object.")
            self.schemas.register(file.stem, data)

    # -- opening and closing -----------------------------------------------------------------------

    @staticmethod
    def open(
        home: str | Path | None = None,
        *,
        project: Project | str | Path | None = None,
        clock: Clock | None = None,
        gpus: GpuProbe | None = None,
        **settings: Any,
    ) -> Infra:
        """Open a home, made if it is not there. One process shares one Infra a home; each `open` wants its `close`.

        home      a folder; $AGENT_INFRA_HOME or the project's .agent_infra unless given
        project   a folder whose agent_infra.toml (or tools.py) is read; found from the working directory upwards
                  unless given
        settings  as `durability="os"`; they win over the environment and the project's file

        A home that another process owns is opened through that process: sessions, content, schemas and evidence work
        the same; what needs the owner itself (tools, actions, runs) raises NotOwner, and project, clock, gpus and
        settings are the owner's.

        Raises StoreLocked with the owner's pid where it doesn't listen, ConfigErrors, SettingsConflict, and what is
        wrong in the project's files.
        """
        chosen = project if isinstance(project, Project) else find_project(project)
        path = Path(home).expanduser().resolve() if home is not None else default_home(chosen)
        with _lock:
            found = _shared(_open, path)
            if found is None:
                asked = load_settings(chosen, **settings)
                found = _open[path] = _own_or_join(path, chosen, asked, clock=clock, gpus=gpus)
            found._users += 1
            found._serve()
            try:
                found._check_settings(settings)
            except BaseException:
                found.close()
                raise
            return found

    @staticmethod
    def connect(url: str | Path, api_key: str | None = None) -> Infra:
        """Use a home through the process that has it open: a home folder or its socket, or an http(s) URL.

        Raises OwnerUnreachable, StoreFormat.
        """
        return _ClientInfra(Client(target_of(url), api_key), find_project(), users=1)

    def _check_settings(self, asked: Mapping[str, Any]) -> None:
        if asked and load_settings(self.project, **asked) != self.settings:
            raise SettingsConflict(
                "this process has the home open with other settings",
                where=str(self.home),
                why=f"asked for {dict(asked)}",
                mend="Open it once, or with the same settings.",
            )

    def close(self) -> None:
        """Give the home back once everyone who opened it has closed it: everything is then on the disk."""
        with _lock:
            if self._users == 0:
                return
            self._users -= 1
            if self._users:
                return
            for registry in (_open, _default):
                if registry.get(self.home) is self:
                    del registry[self.home]
            self._shut()

    def _shut(self) -> None:
        if os.getpid() != self._pid:
            return
        self._hang_up()
        background.wait_for(self._stop(), twin="close from another thread")
        if self._janitor is not None:
            self._janitor.stop()
        self._home.close()

    async def _stop(self) -> None:
        await self._watcher.stop()
        await self.weaver.stop()
        await self._pool.stop()
        if self.evidence.outbox is not None:
            await self.evidence.outbox.stop()

    def __enter__(self) -> Infra:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Infra({str(self.home)!r}{'' if self._users else ', closed'})"

    def _check_open(self) -> None:
        if not self._users:
            raise HomeClosed("the home was closed", where=str(self.home), mend="Open it again with Infra.open().")

    # -- layer 1 -----------------------------------------------------------------------------------

    def session(self, session_id: str, *, agent: str | None = None) -> StateGraph:
        """A session's graph, made by its first step. Raises InvalidSessionId."""
        self._check_open()
        return StateGraph(session_id, engine=self.backend, agent=agent)

    def sessions(self, where: str | None = None) -> list[str]:
        """The ids of the sessions; `where` is a CEL condition over `session` (`id`, `version`, `step_count`)."""
        self._check_open()
        names = self.engine.sessions()
        if where is None:
            return names
        condition = compile_expression(where, ["session"])
        return [name for name in names if condition.evaluate({"session": self._facts(name)}).holds]

    def caused_by(self, tool: str, within: float) -> list[Node]:
        """Over all sessions: live nodes at the end of a `causes` edge from a node of that tool, created in the last
        `within` seconds, newest first.
        """
        self._check_open()
        return caused_by_everywhere(self.engine, tool, within)

    def _facts(self, session: str) -> dict[str, Any]:
        head = self.engine.head(session)
        return {"id": session, "version": self.engine.version_of(session, head), "step_count": head.step}

    def gc(self, limit: int = 1000) -> Collected:
        """Apply the settings' retention to every session, in one bounded pass each, and say what was freed."""
        self._check_open()
        return collect_all(self.engine, self._retention(), limit=limit, timeout=5.0)

    # -- layer 2 -----------------------------------------------------------------------------------

    def refresh_tools(self) -> list[str]:
        """Load changed tool files anew, and ask every MCP server and image again for its list. Contracts follow.

        Gives the reasons why some couldn't be asked; they keep the tools that they had. Raises ToolInvalid, FileMissing.
        """
        self._check_open()
        self.tools.reload()
        return background.wait_for(self._outside.refresh(), twin="refresh_tools from another thread")

    # -- layer 4 -----------------------------------------------------------------------------------

    def run(
        self, goal: str | Path | Mapping[str, Any], session: str | None = None, agent: str | None = None
    ) -> RunResult:
        """Compile a goal and execute it, in a new session unless one is named. Raises what compiling raises."""
        return background.wait_for(self.arun(goal, session, agent), twin="arun")

    async def arun(
        self, goal: str | Path | Mapping[str, Any], session: str | None = None, agent: str | None = None
    ) -> RunResult:
        """`run` for running loops."""
        return await self.scheduler.aexecute_gdep(self._compile(goal, session, agent))

    def _compile(self, goal: str | Path | Mapping[str, Any], session: str | None, agent: str | None) -> Any:
        name = session or f"run-{new_ulid(self.engine.clock.micros())}"
        return self.scheduler.compile_gdep(goal, state_graph=self.session(name, agent=agent))

    def resume(self, session: str | None = None) -> list[RunResult]:
        """Go on with every run that began and didn't end, of one session or of all."""
        return background.wait_for(self.aresume(session), twin="aresume")

    async def aresume(self, session: str | None = None) -> list[RunResult]:
        """`resume` for running loops."""
        self._check_open()
        return await self.scheduler.aresume(session)

    # -- layer 3 -----------------------------------------------------------------------------------

    def save_report(self, reward: WovenReward, language: str = "en") -> Path:
        """Write a reward's Markdown report under `<home>/reports/`, and give its path. One file a record and
        language.
        """
        folder = self.home / "reports"
        folder.mkdir(exist_ok=True)
        path = folder / f"{reward.cid}.{language}.md"
        path.write_text(reward.report(language=language), encoding="utf-8")
        self.weaver.used(reward, path.name, "report")
        return path


class _ClientInfra(Infra):
    """A home that another process owns: layer 1, content and evidence through it, everything else only there."""

    def __init__(self, client: Client, project: Project, users: int = 0) -> None:
        self.home = client.home
        self.project = project
        self.settings = Settings.model_validate(client.owner.settings)
        self._users = users
        self._client = client
        self.backend = self._remote = RemoteBackend(client)
        self.blobs = RemoteBlobs(client)
        self.schemas = cast("SchemaBroker", RemoteSchemas(client))
        self.evidence = EvidenceStore(self.blobs, folder=client.home / "ipfs", ipfs=self.settings.evidence.ipfs or None)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise self._client.only_owner(f"infra.{name}")

    def answers(self) -> bool:
        """Whether the home's owner, this one or a later, still answers."""
        try:
            self._client.greet()
        except OwnerUnreachable:
            return False
        return True

    def sessions(self, where: str | None = None) -> list[str]:
        self._check_open()
        return self._remote.sessions(where)

    def caused_by(self, tool: str, within: float) -> list[Node]:
        self._check_open()
        return self._remote.caused_by(tool, within)

    def gc(self, limit: int = 1000) -> Collected:
        self._check_open()
        return self._remote.gc(limit)

    def _serve(self) -> None:
        pass

    def _check_settings(self, asked: Mapping[str, Any]) -> None:
        differing = _differing(asked, self._client.owner.settings)
        if differing:
            raise SettingsConflict(
                f"process {self._client.owner.pid} owns the home and has it open with other settings",
                where=str(self.home),
                why=f"asked for {dict(asked)}, and {', '.join(differing)} is another there",
                mend="Leave the settings out: the owner's are in force.",
                facts={"pid": self._client.owner.pid},
            )

    def _shut(self) -> None:
        self._client.close()


def _differing(asked: Mapping[str, Any], there: Mapping[str, Any]) -> list[str]:
    """The names of settings that are not as asked."""
    found: list[str] = []
    for name, value in asked.items():
        other = there.get(name)
        if isinstance(value, Mapping) and isinstance(other, Mapping):
            inner = _differing(cast("Mapping[str, Any]", value), cast("Mapping[str, Any]", other))
            found += [f"{name}.{each}" for each in inner]
        elif value != other:
            found.append(name)
    return found


def _own_or_join(
    path: Path, project: Project, settings: Settings, *, clock: Clock | None, gpus: GpuProbe | None
) -> Infra:
    """Own a home, or become a client of the process that does. Raises StoreLocked where that doesn't listen."""
    deadline = time.monotonic() + _JOIN_WAIT
    while True:
        try:
            return Infra(path, project, settings, clock=clock, gpus=gpus)
        except StoreLocked as locked:
            try:
                return _ClientInfra(Client(socket_of(path)), project)
            except OwnerUnreachable as silent:
                if time.monotonic() > deadline:
                    locked.why = f"one process at a time owns an embedded home, and {silent.what} at {silent.where}"
                    locked.mend = (
                        "Wait if it is just closing the home, or end it; where it runs without agent-infra-rl[server], "
                        "install that, so that others can join."
                    )
                    raise locked from silent
        time.sleep(0.02)


def _shared(registry: dict[Path, Infra], path: Path) -> Infra | None:
    """The Infra that this process has of a home, unless its owner was another process that has ended."""
    found = registry.get(path)
    if isinstance(found, _ClientInfra) and not found.answers():
        del registry[path]
        return None
    return found


def default_infra() -> Infra:
    """The default home's Infra, opened once and kept until the process ends."""
    path = default_home(find_project())
    with _lock:
        found = _shared(_default, path)
        if found is None:
            found = _default[path] = Infra.open(path)
        return found


@atexit.register
def _close_all() -> None:
    for infra in list(_open.values()):
        infra._users = 1  # pyright: ignore[reportPrivateUsage]
        infra.close()
