"""Models that handle signals. The id of a request names what a call does."""

import asyncio
import logging
import os
import signal
import sys
import threading
import time

from mlserver import MLModel
from mlserver.logging import logger
from mlserver.types import InferenceResponse, ResponseOutput

seen = []


def handle(number, _frame):
    seen.append(f"{signal.Signals(number).name} on {threading.current_thread() is threading.main_thread()}")


def fail(number, _frame):
    raise RuntimeError("the handler failed")


def answer():
    output = ResponseOutput(name=";".join(seen), shape=[1], datatype="INT64", data=[1])
    return InferenceResponse(model_name="m", outputs=[output])


def leave(number, _frame):
    sys.exit(3)


class Handling(MLModel):
    async def load(self):
        signal.signal(signal.SIGUSR2, handle)
        return True

    def _run(self, name):
        if name == "raise":
            seen.clear()
            os.kill(os.getpid(), signal.SIGUSR2)
        elif name == "alarm":
            seen.clear()
            signal.signal(signal.SIGALRM, handle)
            signal.setitimer(signal.ITIMER_REAL, 0.01)
            time.sleep(0.05)
            signal.alarm(0)
        elif name == "restore":
            before = signal.signal(signal.SIGUSR2, fail)
            assert before is handle, before
            assert signal.getsignal(signal.SIGUSR2) is fail
            os.kill(os.getpid(), signal.SIGUSR2)
            assert signal.signal(signal.SIGUSR2, before) is fail
        elif name == "server":
            seen.clear()
            for handler in (signal.SIG_DFL, signal.SIG_IGN, fail, leave, handle):
                signal.signal(signal.SIGTERM, handler)
                assert signal.getsignal(signal.SIGTERM) is handler
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(0.02)
            signal.signal(signal.SIGTERM, leave)
        elif name == "wrong":
            for number, handler in ((signal.SIGKILL, handle), (signal.SIGUSR2, "handle"), (999, handle)):
                try:
                    signal.signal(number, handler)
                except (OSError, TypeError, ValueError) as error:
                    seen.append(type(error).__name__)
        elif name == "fork":
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            child = os.fork()
            if not child:
                time.sleep(10)
                os._exit(0)
            os.kill(child, signal.SIGTERM)
            seen[:] = [str(os.WTERMSIG(os.waitpid(child, 0)[1]))]

    async def predict(self, payload):
        if payload.id == "loop":
            seen.clear()
            loop = asyncio.get_running_loop()
            called = asyncio.Event()
            loop.add_signal_handler(signal.SIGUSR1, called.set)
            os.kill(os.getpid(), signal.SIGUSR1)
            await asyncio.wait_for(called.wait(), 5)
            assert loop.remove_signal_handler(signal.SIGUSR1)
            seen.append("loop")
        elif payload.id == "subprocess":
            process = await asyncio.create_subprocess_exec(sys.executable, "-c", "print(1)", stdout=-1)
            output, _ = await process.communicate()
            seen[:] = [output.decode().strip()]
        else:
            self._run(payload.id)
            await asyncio.sleep(0.02)
        return answer()


class PlainHandling(Handling):
    def predict(self, payload):
        self._run(payload.id)
        time.sleep(0.02)
        return answer()


class Logging(MLModel):
    """Uses the logger as the models of the original do."""

    async def load(self):
        assert len(logger.handlers) == 1
        assert isinstance(logger.handlers[0], logging.StreamHandler)
        logger.handlers[0].setFormatter(logging.Formatter("%(levelname)s %(message)s"))
        logging.basicConfig(level=logging.DEBUG)
        logging.getLogger("mine").debug("begun")
        logging.info("info of the root")
        return True

    async def predict(self, payload):
        logger.info("asked")
        logging.basicConfig(level=logging.INFO, force=True)
        logging.getLogger("mine").info("forced")
        return InferenceResponse(model_name="m", outputs=[])
