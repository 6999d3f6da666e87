"""Where rows live. A store is an ordered map of bytes with atomic batches (`Store`), and knows nothing of graphs.

Rows come in by `write`, leave by `get`, `get_many` and `scan`. One conformance suite (`agent_infra.testing`) holds
for all: `RocksStore` is the embedded default, `MemoryStore` keeps nothing;
`fit_store` brings settings down to what the machine has.
"""

from agent_infra.state.stores.base import Row, Store, Write
from agent_infra.state.stores.fitting import FittedStore, fit_store, fit_to
from agent_infra.state.stores.memory import MemoryStore
from agent_infra.state.stores.rocksdb import Compression, RocksStore

__all__ = ["Compression", "FittedStore", "MemoryStore", "RocksStore", "Row", "Store", "Write", "fit_store", "fit_to"]
