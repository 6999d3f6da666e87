"""Where signals come from: adapters that translate something outside into signals, and judge nothing.

Events come in by `watch` (an event wants your signal), signals leave into the sink that `start` was given. An adapter
that has nothing says nothing; what goes wrong stands in its `health`, and never becomes a value.

    base        the Source protocol, SourceHealth
    pursuit     the common part of sources that must ask, with back-off
    polling     HTTP; payload: values in JSON that came from outside
    webhook     signed callbacks
    metric      a figure of a call's receipt
    function    a function of the user's own
    configured  sources as agent_infra.toml declares them
"""

from agent_infra.rewards.sources.base import Sink, Source, SourceHealth
from agent_infra.rewards.sources.configured import sources_from_config
from agent_infra.rewards.sources.function import FunctionSource
from agent_infra.rewards.sources.metric import MetricSource
from agent_infra.rewards.sources.polling import PollingSource
from agent_infra.rewards.sources.pursuit import PursuingSource
from agent_infra.rewards.sources.webhook import Places, WebhookSource

__all__ = [
    "FunctionSource",
    "MetricSource",
    "Places",
    "PollingSource",
    "PursuingSource",
    "Sink",
    "Source",
    "SourceHealth",
    "WebhookSource",
    "sources_from_config",
]
