"""Where an audit goes after the call: a notebook, a table, a model card, an experiment tracker.

The methods stand here and the work in the modules that they import; `Audit` inherits them.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, cast

from dosimeter._files import write_text

if TYPE_CHECKING:
    from dosimeter.audits.result import Audit

__all__ = ["AuditOutputs"]


class AuditOutputs:
    """The ways out of an audit, besides JSON and the page."""

    def _self(self) -> Audit:
        return cast("Audit", self)

    def __repr__(self) -> str:
        from dosimeter.audits.notebook import short

        return short(self._self())

    def _repr_html_(self) -> str:
        """Draw the card that a notebook shows."""
        from dosimeter.audits.notebook import audit_card

        return audit_card(self._self())

    def plot(self, name: str | None = None) -> Any:
        """Draw one chart of the page.

        Args:
            name: Which chart, e.g. "roc"; without one, the first that this audit has. `plots` names them all.

        Returns:
            An Altair chart, which a notebook shows.

        Raises:
            InputError: If this audit has no such chart.
            ImportError: If the extra report is not installed.

        >>> audit.plot("roc")  # doctest: +SKIP
        """
        from dosimeter.audits.notebook import chart

        return chart(self._self(), name)

    @property
    def plots(self) -> tuple[str, ...]:
        """The names of the charts that `plot` can draw."""
        from dosimeter.audits.notebook import chart_names

        return chart_names(self._self())

    def to_frame(self) -> Any:
        """Give every estimate and every guarantee as a row of a pandas table, the headline first.

        Returns:
            A DataFrame with the columns kind ("estimate" or "guarantee"), method, epsilon, low, high, delta,
            confidence, neighbours, unit, validity, is_bound and claim.

        Raises:
            ImportError: If pandas is not installed.

        >>> audit.to_frame()[["method", "low", "validity"]]  # doctest: +SKIP
        """
        from dosimeter.audits.notebook import frame

        return frame(self._self())

    def to_markdown(self, path: str | os.PathLike[str] | None = None) -> str:
        """Give the audit as Markdown for a model card or a summary: the check, the headline, numbers, what it means.

        Args:
            path: A file to write it to as well.

        Returns:
            The text, with headings of the second and third level.

        >>> print(audit.to_markdown())  # doctest: +SKIP
        """
        from dosimeter.audits.markdown import markdown

        text = markdown(self._self()).encode("utf-8", "replace").decode()
        if path is not None:
            write_text(path, text)
        return text

    def to_model_card(self, model: str, *, dataset: str, task: str = "other") -> str:
        """Give a model card for the Hugging Face hub: metadata with the numbers as evaluation results, then Markdown.

        Args:
            model: The name of the model.
            dataset: The name of the data set that the audit used.
            task: The task as the hub names it, e.g. "text-classification".

        Returns:
            A card that `huggingface_hub.ModelCard` reads.

        Raises:
            InputError: If a name is empty.

        >>> card = audit.to_model_card("clinic-forest", dataset="clinic")  # doctest: +SKIP
        """
        from dosimeter.audits.markdown import model_card

        return model_card(self._self(), model, dataset, task)

    def log_to_mlflow(self, *, run_id: str | None = None, prefix: str = "privacy", page: bool = True) -> str:
        """Log the audit to MLflow: numbers as metrics, how they are meant as tags, JSON and page as artifacts.

        Args:
            run_id: The run to log to; without one the active run, or a new one.
            prefix: What the names of metrics and tags begin with, so that two audits fit into one run.
            page: Whether the page is logged as well, which needs the extra report.

        Returns:
            The id of the run.

        Raises:
            ImportError: If MLflow, or what the page needs, is not installed.

        >>> audit.log_to_mlflow()  # doctest: +SKIP
        """
        from dosimeter.audits.trackers import to_mlflow

        return to_mlflow(self._self(), run_id, prefix, page)

    def log_to_wandb(self, run: Any = None, *, prefix: str = "privacy", page: bool = True) -> None:
        """Log the audit to Weights & Biases: numbers into the summary, JSON and page as one artifact.

        Args:
            run: The run to log to; without one the active run.
            prefix: What the names in the summary begin with.
            page: Whether the page is logged as well, which needs the extra report.

        Raises:
            InputError: If there is no run.
            ImportError: If wandb, or what the page needs, is not installed.

        >>> audit.log_to_wandb()  # doctest: +SKIP
        """
        from dosimeter.audits.trackers import to_wandb

        to_wandb(self._self(), run, prefix, page)
