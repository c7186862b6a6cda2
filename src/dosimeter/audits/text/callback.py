"""An audit inside `transformers.Trainer`: the rows are checked, canaries are scored on the way, the audit is written.

Nothing is put into the training here. The callback reads what the loader feeds, after the collator, and stops the
training if a canary that is in is missing, masked or packed with other text, or if one that is out is there.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from dosimeter import _validate as check
from dosimeter._files import write_text
from dosimeter._validate import InputError
from dosimeter.audits.strict import checked
from dosimeter.audits.text.dp import read_mechanism
from dosimeter.audits.text.fed_rows import check_rows
from dosimeter.audits.text.result import Look, Sides
from dosimeter.audits.text.run import Settings, check_size, exposure_of, look_at, of_passes, read_sheet
from dosimeter.audits.text.scores import DEFAULT, read_score, score_of
from dosimeter.audits.text.sheet import CanarySheet
from dosimeter.audits.text.subject import Asked
from dosimeter.columns import read_columns
from dosimeter.estimate import plain
from dosimeter.models.token_pass import Passes, TokenPass
from dosimeter.reading import read_text, strict_json

__all__ = ["DosimeterCallback"]

FOLDER = "dosimeter"
_PARTS = ("log_probability", "mean", "deviation", "rank")


class DosimeterCallback:
    """Audit a `transformers.Trainer` run by its canary sheet.

    Put `sheet.training_texts(your_texts)` into the training set yourself. At the start the callback looks through the
    rows that the loader feeds: every canary that is in must stand there, alone in its row and with its secret in the
    loss, and no other may. It asks for `max_steps`: with epochs the number of steps would tell how many canaries are
    in. The model as it is at the start serves as the base model, unless you pass one or train adapters.

    In the folder `dosimeter` of the trainer's `output_dir` it keeps what it fixed beforehand, so that a run that was
    stopped and resumed keeps the same sheet, score and looks; at the end `audit.json` stands there, and
    `audit.html` with the extra report.

    Args:
        sheet: The canaries and their coins, or the file that they are kept in.
        base: The model that the training starts from; None takes the model at the start, or with its adapters off.
        score: The score of the headline, as in `audit_canaries`.
        every: Look every so many steps, for the curve over training; the last look is the headline, whatever the others
            say. None looks at the end alone.
        mechanism: The `PrivacyEngine` of Opacus that the training runs with, or a `DpSgd`; read at the end.
        exposure: How many other secrets a secret is compared with, at the end; 0 leaves exposure out.
        delta: The δ of the guarantees that are tested.
        confidence: The confidence of the bound.
        name: What to call the training.

    Raises:
        InputError: If an argument cannot be used; during training, if the rows are not those of the sheet.

    Examples:
        >>> trainer = Trainer(model, args, train_dataset=rows, callbacks=[DosimeterCallback(sheet)])  # doctest: +SKIP
    """

    def __init__(
        self,
        sheet: CanarySheet | str | os.PathLike[str],
        *,
        base: Any = None,
        score: str = DEFAULT,
        every: int | None = None,
        mechanism: Any = None,
        exposure: int = 63,
        delta: float = 1e-5,
        confidence: float = 0.95,
        name: str | None = None,
    ) -> None:
        self.sheet = read_sheet(sheet)
        self.base, self.mechanism = base, mechanism
        self.settings = Settings(
            read_score(score, base=True, together=base is not None), delta, confidence, exposure, name=name
        )
        check_size(self.sheet, self.settings)
        self.every = None if every is None else check.whole("every", every, 1, "pass after how many steps to look")
        self.audit: Any = None
        self._looks: dict[int, Look] = {}
        self._start: Passes | None = None
        self._start_exposure: Sides | None = None
        self._notes: tuple[str, ...] = ()
        self._texts: Any = None
        self._folder = Path()

    def __getattr__(self, name: str) -> Any:
        """Events of the trainer that the audit ignores."""
        if name.startswith("on_"):
            return lambda *_, **__: None
        raise AttributeError(name)

    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Check steps, sheet and rows, and keep what the base model says."""
        if getattr(args, "max_steps", 0) <= 0:
            raise InputError(
                "the trainer counts epochs, so its number of steps would tell how many canaries are in; pass "
                "TrainingArguments(max_steps=…)."
            )
        self._folder = Path(args.output_dir) / FOLDER
        asked = self._asked(given)
        self._texts = asked.encode(self.sheet)
        resumed = int(getattr(state, "global_step", 0)) > 0
        self._keep(resumed)
        loader = given.get("train_dataloader")
        self._notes = tuple(check_rows(loader, self.sheet, self._texts, given.get("processing_class")))
        if not asked.compared:
            self._start = self._base_pass(asked, resumed)
            self._start_exposure = self._base_exposure(asked, resumed)

    def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Score the canaries if a look is due."""
        step = int(state.global_step)
        if self.every is not None and step % self.every == 0 and step < args.max_steps:
            self._look(step, self._passes(self._asked(given)))

    def on_train_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Audit the trained model and write what was found."""
        if self._texts is None or not getattr(state, "is_world_process_zero", True):
            return
        asked, step = self._asked(given), int(state.global_step)
        passes = self._passes(asked)
        self._look(step, passes)
        early = [f"the training stopped after {step} of {args.max_steps} steps"] if step < args.max_steps else []
        self.audit = of_passes(
            asked,
            self.sheet,
            passes,
            self.settings,
            mechanism=read_mechanism(self.mechanism),
            looks=[self._looks[at] for at in sorted(self._looks) if at <= step],
            step=step,
            notes=[*self._notes, *early],
            base_exposure=self._start_exposure,
        )
        write_text(self._folder / "audit.json", self.audit.to_json() + "\n")
        try:
            self.audit.to_html(self._folder / "audit.html")
        except ImportError:
            return  # the page needs the extra report; the audit itself is written

    def _asked(self, given: dict[str, Any]) -> Asked:
        """The model as it is now, with the trainer's tokenizer."""
        coder = given.get("processing_class")
        if coder is None:
            raise InputError("the trainer has no tokenizer; pass Trainer(…, processing_class=tokenizer).")
        return Asked.read(given["model"], coder, self.base)

    def _passes(self, asked: Asked) -> Passes:
        """What model and base say of the canaries now; those of the base from the start, unless it is another model."""
        made = asked.passes(self._texts)
        if self._start is None:
            return made
        start = self._start.target
        return Passes(made.target, start, None)

    def _look(self, step: int, passes: Passes) -> None:
        scores = score_of(self.settings.score, passes, [canary.secret for canary in self.sheet.canaries])
        self._looks[step] = look_at(step, self.sheet, scores, self.settings)
        rows = [plain(self._looks[at]) for at in sorted(self._looks)]
        write_text(self._folder / "looks.json", json.dumps(rows) + "\n")

    def _keep(self, resumed: bool) -> None:
        """Write down what is fixed, or compare with what an earlier part of the run wrote down."""
        fixed = {
            "sheet_hash": self.sheet.hash,
            "mask_hash": self.sheet.mask_hash,
            "score": self.settings.score,
            "delta": self.settings.delta,
            "confidence": self.settings.confidence,
        }
        path = self._folder / "fixed.json"
        if resumed and path.exists():
            before = strict_json(read_text(path), what=str(path))
            for name, value in fixed.items():
                if before.get(name) != value:
                    raise InputError(
                        f"the run was started with another {name.replace('_', ' ')} than it is resumed with; pass the "
                        "sheet and the settings that it was started with."
                    )
            looks = self._folder / "looks.json"
            if looks.exists():
                rows = strict_json(read_text(looks), what=str(looks))
                kept = [checked(Look, row, str(looks)) for row in rows]
                self._looks = {look.step: look for look in kept}
            return
        if resumed:
            raise InputError(
                f"the run is resumed, but {path} does not say which sheet it was started with; audit the model with "
                "audit_canaries instead."
            )
        self._folder.mkdir(parents=True, exist_ok=True)
        for stale in ("looks.json", "base.npz", "base_exposure.json", "audit.json", "audit.html"):
            (self._folder / stale).unlink(missing_ok=True)
        write_text(path, json.dumps(fixed) + "\n")

    def _base_pass(self, asked: Asked, resumed: bool) -> Passes:
        """What the model says before its first step, kept in a file for a run that is resumed."""
        path = self._folder / "base.npz"
        lengths = self._texts.spans[:, 1] - self._texts.spans[:, 0]
        if not resumed:
            made = asked.passes(self._texts)
            columns: dict[str, Any] = {name: np.concatenate(getattr(made.target, name)) for name in _PARTS}
            np.savez(path, **columns)
            return made
        if not path.exists():
            raise InputError(
                f"the run is resumed, but {path} with the base model's answers is gone; pass DosimeterCallback(base=…)."
            )
        kept = read_columns(path)
        if any(name not in kept or kept[name].size != lengths.sum() for name in _PARTS):
            raise InputError(f"{path} does not belong to this sheet; pass DosimeterCallback(base=…).")
        cuts = np.cumsum(lengths)[:-1]
        return Passes(TokenPass(*(tuple(np.split(kept[name], cuts)) for name in _PARTS)))

    def _base_exposure(self, asked: Asked, resumed: bool) -> Sides | None:
        """Exposure under the model before its first step, kept like its answers; None where it is not measured."""
        path = self._folder / "base_exposure.json"
        if resumed:
            return checked(Sides, strict_json(read_text(path), what=str(path)), str(path)) if path.exists() else None
        assert self._start is not None
        exposure = exposure_of(asked, self.sheet, self._start, self.settings)
        if exposure is None:
            return None
        write_text(path, json.dumps(plain(exposure.target)) + "\n")
        return exposure.target
