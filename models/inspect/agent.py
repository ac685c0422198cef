"""An agent of inspect as a model of ours."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from tempfile import TemporaryDirectory
from typing import Any

from medimg_eval.case import Prompt, Prompts
from medimg_eval.errors import CaseError, UsageError, UserError, import_optional
from medimg_eval.models.base import VisionLanguageModel
from medimg_eval.models.inspect.messages import FINISHED, as_chat_messages, steps_of, usage_of
from medimg_eval.models.inspect.wrapped import wrapped_model
from medimg_eval.question import Decoding, Turn


class InspectAgent(VisionLanguageModel):
    """Agent of inspect as a model: prompts are samples, events a trace.

    Args:
        agent: `package.module.factory` of what gives an inspect agent or solver.
        model: that the agent asks: a model of ours (a config with `_target_`), or inspect's name of one, such as
            `openai/gpt-4o`.
        settings: arguments of the factory.
        message_limit: of a session, as inspect counts; None for no limit.
        token_limit: of a session; None for no limit.
        time_limit: of a session, in seconds; None for no limit.
        remote: whether inspect's model is asked on another machine; of a model of ours it says so itself.
        logs: a folder that inspect's own logs are kept in; None keeps none.
        batch: sessions at once.

    Raises:
        UsageError: there is no such factory.
    """

    uses_torch = False
    file_arguments = ()
    pace_arguments = ("logs", "batch")

    def __init__(
        self,
        agent: str,
        model: Any,
        *,
        settings: Mapping[str, Any] | None = None,
        message_limit: int | None = 40,
        token_limit: int | None = None,
        time_limit: int | None = None,
        remote: bool = True,
        logs: str | None = None,
        batch: int = 16,
    ) -> None:
        self.agent, self.model, self.settings, self.logs = agent, model, dict(settings or {}), logs
        self.limits = {"message_limit": message_limit, "token_limit": token_limit, "time_limit": time_limit}
        self.preferred_batch = batch
        self._says_remote = remote
        module, dot, name = agent.rpartition(".")
        if not dot:
            raise UsageError(f"model.agent is {agent!r}; name a factory such as my_agents.careful")
        try:
            self._factory = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError) as error:
            raise UsageError(f"model.agent: there is no {agent} ({error}); it must lie where Python looks") from error

    @property
    def remote(self) -> bool:  # type: ignore[override]
        """Whether pictures leave this machine, by our model or the setting."""
        return self._says_remote if isinstance(self.model, str) else bool(getattr(self.model, "remote", False))

    def check_ready(self) -> None:
        """Raises UserError where inspect is missing or our model unready."""
        import_optional("inspect_ai")
        getattr(self.model, "check_ready", lambda: None)()

    def usage(self) -> Mapping[str, Any]:
        """Cost so far of a model of ours."""
        return getattr(self.model, "usage", dict)()

    def generate(self, prompts: Prompts, decoding: Decoding) -> list[Turn]:
        """Has the agent answer prompts, all sessions at once.

        Raises:
            CaseError: a session failed; the message is inspect's.
            UserError: inspect ended without samples.
        """
        inspect, datasets = import_optional("inspect_ai"), import_optional("inspect_ai.dataset")
        samples = [
            datasets.Sample(id=number, input=as_chat_messages(prompt), metadata={"case": prompt.case_id})
            for number, prompt in enumerate(prompts, 1)
        ]
        task = inspect.Task(dataset=samples, solver=self._solver(), name="medimg_eval", **self.limits)
        model = self.model if isinstance(self.model, str) else wrapped_model(self.model, decoding)
        how: dict[str, Any] = {"max_tokens": decoding.max_new_tokens, "temperature": decoding.temperature}
        if decoding.temperature > 0:
            how |= {"top_p": decoding.top_p, "seed": decoding.seed}
        with TemporaryDirectory(prefix="medimg_eval-") as scratch:
            (log,) = inspect.eval(
                task,
                model=model,
                log_dir=self.logs or scratch,
                log_images=False,
                display="none",
                fail_on_error=False,
                max_samples=len(samples),
                **how,
            )
            done = {sample.id: sample for sample in log.samples or ()}
        if not done:
            raise UserError(f"{self.agent}: inspect ended with {log.status!r}: {getattr(log.error, 'message', '')}")
        failed = [prompt for number, prompt in enumerate(prompts, 1) if done[number].error is not None]
        if failed:
            sample = done[list(prompts).index(failed[0]) + 1]
            raise CaseError(f"case {failed[0].case_id!r}: {sample.error.message}")
        return [_session_turn(done[number], prompt) for number, prompt in enumerate(prompts, 1)]

    def _solver(self) -> Any:
        solver = self._factory(**self.settings)
        agents = import_optional("inspect_ai.agent")
        return agents.as_solver(solver) if agents.is_agent(solver) else solver


def _session_turn(sample: Any, prompt: Prompt) -> Turn:
    """Reply of a session; what the prompt itself held is no step."""
    sample.messages = sample.messages[len(prompt.messages) :]
    finish = str(sample.output.stop_reason) if sample.output.choices else ""
    usage = usage_of(sample.model_usage)._replace(seconds=sample.working_time)
    return Turn(
        sample.output.completion,
        finish="length" if sample.limit else FINISHED.get(finish, finish),
        usage=usage,
        steps=tuple(steps_of(sample)),
    )
