"""Which settings there are: names, types, units, defaults."""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


def _refuse_bool(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("Input should be a number")
    return value


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


Whole: TypeAlias = Annotated[int, BeforeValidator(_refuse_bool), Field(gt=0)]
Count: TypeAlias = Annotated[int, BeforeValidator(_refuse_bool), Field(ge=0)]
Seconds: TypeAlias = Annotated[float, BeforeValidator(_refuse_bool), Field(ge=0, allow_inf_nan=False)]
LogLevel: TypeAlias = Annotated[Literal["debug", "info", "warning", "error"], BeforeValidator(_lower)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class RocksDBSettings(_Section):
    """`[state.rocksdb]`: what the embedded store asks of the machine; the defaults suit a laptop. What is more than the
    process may have is brought down: `agent-infra config show` shows what is in force, and why.

    write_buffer_size  memory (MiB) that collects writes before a file is written; 512 suits a server
    max_open_files     files that the store may hold open; 100000 suits a server
    compression        how blocks are packed on disk
    """

    write_buffer_size: Whole = 16
    max_open_files: Whole = 256
    compression: Literal["lz4", "zstd", "snappy", "none"] = "lz4"


class RetentionSettings(_Section):
    """`[state.retention]`: which versions of a session's line stay readable. 0: no limit of that kind.

    every            seconds between passes in the background; 0: none, `infra.gc()` only
    keep_last        so many versions, the head always
    max_age          seconds since their commit
    max_mb           MiB of their nodes
    abandoned_after  seconds after which versions that were rolled back go
    """

    every: Seconds = 0
    keep_last: Count = 0
    max_age: Seconds = 0
    max_mb: Count = 0
    abandoned_after: Seconds = 0


class StateSettings(_Section):
    """`[state]`: the state graph.

    blob_budget_mb    MiB that stored content may take; writers wait for room, and are then refused; 0: no limit
    undeclared_types  what a node type that no schema declares gets: an open schema and one warning, or an error
    """

    undeclared_types: Literal["warn", "refuse"] = "warn"
    blob_budget_mb: Count = 0
    rocksdb: RocksDBSettings = RocksDBSettings()
    retention: RetentionSettings = RetentionSettings()


class RewardSettings(_Section):
    """`[rewards]`: the reward weaver.

    watch_rules  seconds between two looks at the rule files, whose changes come into force by themselves; 0: not looked at
    """

    watch_rules: Seconds = 1.0


class EvidenceSettings(_Section):
    """`[evidence]`: what becomes of evidence bundles.

    prices      a file with a dated table of prices, YAML or TOML, from which costs are taken; empty: none
    ipfs        the RPC API of an IPFS node that every bundle is pushed to, as http://127.0.0.1:5001; empty: none
    ipfs_queue  bundles that may wait for that node; further ones are left out, and counted
    ipfs_retry  seconds before a failed push is tried again; each further pause is twice as long, up to 5 minutes
    """

    prices: str = ""
    ipfs: str = ""
    ipfs_queue: Whole = 10_000
    ipfs_retry: Seconds = 1.0


class Settings(_Section):
    """The settings in force: complete, typed, immutable. `load_settings` makes them; `Settings()` is the defaults.

    durability         when a commit returns: after an fsync that it may share (`group`), after its own (`step`), or as
                       soon as the operating system has it (`os`: survives a killed process, not a power loss)
    lock_wait_timeout  seconds that a writer waits for another writer of the same session
    log_level          the lowest level that the library's programs write to stderr
    memory_limit_mb    memory (MiB) for tools in worker processes; the machine's own limit caps it
    """

    durability: Literal["group", "step", "os"] = "group"
    lock_wait_timeout: Seconds = 5.0
    log_level: LogLevel = "warning"
    memory_limit_mb: Whole = 24576
    state: StateSettings = StateSettings()
    evidence: EvidenceSettings = EvidenceSettings()
    rewards: RewardSettings = RewardSettings()


SECTIONS: Final = ("state", "evidence")


def names_in(section: tuple[str, ...]) -> list[str]:
    """The setting names of a section; of `()`, those at the top."""
    model: type[BaseModel] = Settings
    for name in section:
        inner = model.model_fields[name].annotation
        assert isinstance(inner, type)
        assert issubclass(inner, BaseModel)
        model = inner
    return list(model.model_fields)


def default_of(names: tuple[str, ...]) -> object:
    """A setting's default, a section's as a dict."""
    value: object = Settings()
    for name in names:
        value = getattr(value, name)
    return value.model_dump() if isinstance(value, BaseModel) else value
