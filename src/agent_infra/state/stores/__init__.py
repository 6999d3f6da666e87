"""Where rows live. A store is an ordered map of bytes with atomic batches (`Store`), and knows nothing of graphs.

Rows come in by `write`, leave by `get`, `get_many` and `scan`. One conformance suite (`agent_infra.testing`) holds
for all: `RocksStore` is the embedded default, `MemoryStore` keeps nothing.
"""

from agent_infra.state.stores.base import Row, Store, Write
from agent_infra.state.stores.memory import MemoryStore
from agent_infra.state.stores.rocksdb import Compression, RocksStore

__all__ = ["Compression", "MemoryStore", "RocksStore", "Row", "Store", "Write"]
