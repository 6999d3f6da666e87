"""Configuration: the project that a process works for, and the settings in force.

In come a folder's `agent_infra.toml`, `pyproject.toml`, the environment and keyword arguments; out go two frozen
records. A *project* says where tools, actions, rules and sources are; `find_project` looks for it from the working
directory upwards. *Settings* say how the library behaves. A setting comes from the strongest of

    keyword argument > environment AGENT_INFRA_… > agent_infra.toml > pyproject.toml [tool.agent_infra] > default

and in each of these every name must be known. An unknown one is refused with its place and the nearest known name: a
misspelt setting that is passed over in silence is found in production.
"""

from agent_infra.config.loading import SECRET, default_home, load_settings
from agent_infra.config.project import FOLDERS, PROJECT_FILE, Project, find_project, read_project
from agent_infra.config.settings import EvidenceSettings, RetentionSettings, RocksDBSettings, Settings, StateSettings
from agent_infra.config.toml import TomlFile

__all__ = [
    "FOLDERS",
    "PROJECT_FILE",
    "SECRET",
    "EvidenceSettings",
    "Project",
    "RetentionSettings",
    "RocksDBSettings",
    "Settings",
    "StateSettings",
    "TomlFile",
    "default_home",
    "find_project",
    "load_settings",
    "read_project",
]
