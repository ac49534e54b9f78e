"""Pictures of the model manager: library, plan, downloads, errors, memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app import scripted_models as scripted
from app.model_rows import Shelf, overall, rows_of
from app.views.models.ledger_dialog import LedgerDialog
from app.views.models.plan_dialog import PlanDialog
from engine.hub.errors import GatedError

if TYPE_CHECKING:
    from PySide6.QtWidgets import QDialog

    from app.screenshots import Studio
    from engine.errors import UserError
    from engine.hub.plan import Plan


def shoot_models(studio: Studio) -> None:
    """Go through the model manager and save each state."""
    page, window = studio.gui.manager.page, studio.window
    studio.gui.manager.show_page()
    page.show_folder(scripted.HOME, 412_000_000_000)

    def show(name: str, shelf: Shelf, *, files: bool = False) -> None:
        rows = rows_of(shelf)
        page.show_rows(rows)
        studio.gui.manager.bar.show_overall(overall(shelf.downloads))
        if files:
            page.views[str(scripted.HOME / scripted.MXFP4)].files_button.setChecked(True)
        studio.shoot(name)
        if files:
            page.views[str(scripted.HOME / scripted.MXFP4)].files_button.setChecked(False)

    show("models", scripted.shelf())
    show("models-downloading", scripted.shelf(scripted.download("downloading", 0.43)))
    show("models-files", scripted.shelf(scripted.download("downloading", 0.43)), files=True)
    stalled = scripted.download("stalled", 0.43, reason="No data is arriving.")
    show("models-stalled", scripted.shelf(stalled))
    full = "The volume of the models has only 2.0 GB left."
    show("models-error", scripted.shelf(scripted.download("paused", 0.71, reason=full, code="disk-full")))
    page.show_rows(rows_of(scripted.shelf()))
    studio.gui.manager.bar.show_overall(None)

    def shoot(name: str, dialog: QDialog) -> None:
        dialog.show()
        studio.shoot(name, dialog)
        dialog.close()
        dialog.deleteLater()

    def plan_dialog(made: Plan | UserError) -> PlanDialog:
        repo = "thinkingmachines/Inkling-Small-NVFP4"
        folder = scripted.HOME / repo
        return PlanDialog(
            studio.s.theme,
            repo,
            "whole",
            ask=scripted.answer_with(made),
            folder_of=lambda _repo: folder,
            memory=scripted.MEMORY,
            parent=window,
        )

    shoot("plan", plan_dialog(scripted.plan("whole", have=1)))
    shoot("plan-complete", plan_dialog(scripted.plan("head", have=2)))
    shoot("plan-no-room", plan_dialog(scripted.plan("whole", free=96_000_000_000)))
    refused = GatedError("thinkingmachines/Inkling-Small-NVFP4 wants its terms accepted first.", "Accept them.")
    shoot("plan-error", plan_dialog(refused))

    def ledger(available: int) -> LedgerDialog:
        def ask(done: object) -> object:
            assert callable(done)
            done(scripted.estimate(available))
            return lambda: None

        dialog = LedgerDialog(
            studio.s.theme,
            scripted.PIPE,
            ask=ask,  # pyright: ignore[reportArgumentType]
            context_for=lambda _longest: 8192,
            replaces="Inkstand Demo",
            parent=window,
        )
        dialog.resize(540, dialog.sizeHint().height())
        return dialog

    shoot("memory", ledger(171_000_000_000))
    shoot("memory-short", ledger(118_000_000_000))
