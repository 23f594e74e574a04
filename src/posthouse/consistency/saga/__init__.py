"""Sagas: steps in several services, each with a compensation, whose progress is in the log.

saga = Saga("order")
saga.step("reserve", reserve, compensate=release)
saga.step("pay", pay, compensate=refund, timeout=30)
saga.step("ship", ship)

SagaRunner(saga, kafka="127.0.0.1:9092", admin="127.0.0.1:15672").run()

with SagaClient("order", kafka="127.0.0.1:9092") as orders:
    orders.start("order-7", {"item": "tea"})
"""

from posthouse.consistency.saga.client import SagaClient
from posthouse.consistency.saga.definition import WAIT, Saga, StepCall, StepFailed
from posthouse.consistency.saga.runner import SagaRunner
from posthouse.consistency.saga.state import SagaState, Status

__all__ = ["WAIT", "Saga", "SagaClient", "SagaRunner", "SagaState", "Status", "StepCall", "StepFailed"]
