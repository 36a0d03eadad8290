import asyncio

import cloudpickle
import pytest

from syncline.serve.context import RequestContext, request_context
from syncline.serve.multiplex import get_multiplexed_model_id, multiplexed


class Loader:
    def __init__(self) -> None:
        self.loads: list[str] = []
        self.loading = 0
        self.most_loading = 0

    @multiplexed(max_num_models_per_replica=2)
    async def load(self, model_id: str) -> str:
        self.loading += 1
        self.most_loading = max(self.most_loading, self.loading)
        await asyncio.sleep(0.001)
        self.loading -= 1
        self.loads.append(model_id)
        if model_id == "broken":
            raise KeyError(model_id)
        return model_id.upper()


def test_models_stay_loaded_until_others_were_used_later():
    async def scenario() -> None:
        loader = Loader()
        for model in ("a", "b", "a", "c", "a", "b"):
            assert await loader.load(model) == model.upper()
        assert loader.loads == ["a", "b", "c", "b"]

    asyncio.run(scenario())


def test_one_load_at_a_time_and_one_for_all_callers_of_a_model():
    async def scenario() -> None:
        loader = Loader()
        models = await asyncio.gather(*[loader.load(model) for model in "abab"])
        assert models == ["A", "B", "A", "B"]
        assert (sorted(loader.loads), loader.most_loading) == (["a", "b"], 1)

    asyncio.run(scenario())


def test_failed_load_reaches_its_callers_and_is_tried_again():
    async def scenario() -> None:
        loader = Loader()
        results = await asyncio.gather(
            loader.load("broken"), loader.load("broken"), return_exceptions=True
        )
        assert all(isinstance(each, KeyError) for each in results)
        with pytest.raises(KeyError):
            await loader.load("broken")
        assert loader.loads == ["broken", "broken"]

    asyncio.run(scenario())


def test_cancelled_caller_does_not_stop_the_load_for_others():
    async def scenario() -> None:
        loader = Loader()
        calls = [asyncio.ensure_future(loader.load("a")) for _ in range(2)]
        await asyncio.sleep(0)
        calls[0].cancel()
        assert await calls[1] == "A"

    asyncio.run(scenario())


def test_destructor_of_a_removed_model_runs():
    removed: list[str] = []

    class Sync(str):
        def __del__(self) -> None:
            removed.append(str(self))

    class Async(str):
        async def __del__(self) -> None:
            await asyncio.sleep(0)
            removed.append(str(self))

    @multiplexed(max_num_models_per_replica=1)
    async def load(model_id: str) -> str:
        return (Sync if model_id == "sync" else Async)(model_id)

    async def scenario() -> None:
        await load("sync")
        await load("async")
        assert removed == ["sync"]
        await load("next")
        assert removed == ["sync", "async"]

    asyncio.run(scenario())


def test_unlimited_number_of_models():
    loads: list[str] = []

    @multiplexed(max_num_models_per_replica=-1)
    async def load(model_id: str) -> str:
        loads.append(model_id)
        return model_id

    async def scenario() -> None:
        for _ in range(2):
            for i in range(50):
                await load(str(i))

    asyncio.run(scenario())
    assert len(loads) == 50


def test_model_id_is_that_of_the_request():
    assert get_multiplexed_model_id() == ""
    token = request_context.set(RequestContext(multiplexed_model_id="m"))
    assert get_multiplexed_model_id() == "m"
    request_context.reset(token)


def test_used_instance_can_be_pickled_and_loads_again():
    loader = Loader()
    asyncio.run(loader.load("a"))
    copy = cloudpickle.loads(cloudpickle.dumps(loader))
    assert asyncio.run(copy.load("a")) == "A"
    assert copy.loads == ["a", "a"]


@pytest.mark.parametrize(("model_id", "error"), [("", ValueError), (3, TypeError)])
def test_wrong_model_id_is_refused(model_id, error):
    with pytest.raises(error, match="model id"):
        asyncio.run(Loader().load(model_id))


@pytest.mark.parametrize(
    ("limit", "error"), [(0, ValueError), (-2, ValueError), ("3", TypeError), (True, TypeError)]
)
def test_impossible_limit_is_refused(limit, error):
    with pytest.raises(error, match="max_num_models_per_replica"):
        multiplexed(max_num_models_per_replica=limit)


def test_sync_function_and_wrong_parameters_are_refused():
    with pytest.raises(TypeError, match="async def"):

        @multiplexed
        def load(model_id):
            return model_id

    with pytest.raises(TypeError, match="3 parameters"):

        @multiplexed
        async def other(self, model_id, more):
            return model_id
