"""Model calls. `open_client` is the only way in; see `client.Client`.

An answer is durable before it is used, and nothing paid for is paid for twice.
"""

from pipelines.llm.answer import TRANSIENT, Answer, Failure, Usage
from pipelines.llm.request import Request, Sampling, request_key, seed_of

__all__ = ["TRANSIENT", "Answer", "Failure", "Request", "Sampling", "Usage", "request_key", "seed_of"]
