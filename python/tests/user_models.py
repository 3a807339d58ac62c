"""Models that use names for themselves that the worker, or another part of the SDK, uses as well."""

from mlserver import MLModel
from mlserver.types import InferenceResponse, ResponseOutput

FORMS = ("int", "list", "raises", "instance", "delegates")


class Base(MLModel):
    async def predict(self, payload):
        return InferenceResponse(
            model_name="m", outputs=[ResponseOutput(name="y", shape=[1], datatype="INT64", data=[1])]
        )


class Inner:
    """An object that has each attribute."""

    def __getattr__(self, name):
        return [name]


def _raises(name):
    def get(self):
        raise RuntimeError(f"`{name}` is not for you")

    return property(get)


def make(name, form):
    """Returns a class whose attribute `name` is the user's own."""
    if form == "int":
        return type("IntModel", (Base,), {name: 100})
    if form == "list":
        return type("ListModel", (Base,), {name: ["scale", "round"]})
    if form == "raises":
        return type("RaisingModel", (Base,), {name: _raises(name)})
    if form == "instance":

        def load(self):
            setattr(self, name, {"trained": "yesterday"})

        return type("InstanceModel", (Base,), {"load": load, name: None})

    def delegate(self, attribute):
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        return getattr(Inner(), attribute)

    return type("DelegatingModel", (Base,), {"__getattr__": delegate})


def __getattr__(name):
    """Makes the models `int_NAME`, `list_NAME` and so on."""
    form, _, attribute = name.partition("_")
    if form not in FORMS:
        raise AttributeError(name)
    return make(attribute, form)


class ReadOnlyReady(Base):
    @property
    def ready(self):
        return True


class ReadyByProperty(Base):
    """`ready` is what the property says."""

    _has_data = False

    @property
    def ready(self):
        return self._has_data

    @ready.setter
    def ready(self, value):
        pass


class WithoutInit(Base):
    """A model that keeps nothing of the settings."""

    def __init__(self, settings):
        self.factor = 2


class OddMetadata(Base):
    async def metadata(self):
        metadata = await super().metadata()
        metadata.inputs = [1, 2]
        metadata.platform = object()
        return metadata


class DictMetadata(Base):
    def metadata(self):
        return {"name": "m", "platform": "mine", "inputs": []}


class ExitingMetadata(Base):
    def metadata(self):
        raise SystemExit(3)


class WrongMetadata(Base):
    async def metadata(self):
        return 7


class Unhelpful:
    """A class attribute that fails if anything is asked of it."""

    def __getattr__(self, name):
        raise RuntimeError(name)


class UnhelpfulAttribute(Base):
    helper = Unhelpful()
