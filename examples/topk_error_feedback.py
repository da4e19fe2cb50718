"""Top-k with error feedback: `skyfed run smoke --set 'algorithms=["afl", "examples/topk_error_feedback.py:TopK"]'`.

Stich, Cordonnier, Jaggi: "Sparsified SGD with Memory", NeurIPS 2018. A vehicle sends only the k largest entries of its
gradient. What it does not send stays in its memory and is added to the next round's gradient.
"""

from pydantic import Field

from skyfed import Algorithm, Column


class TopK(Algorithm):
    """AFL with sparse uploads and a memory of what was left out."""

    title = "Top-k, error feedback"
    columns = (Column("left_out", "float", "share of the squared norm that stays in the memory"),)

    class Settings(Algorithm.Settings):
        """Set in a row of the config: {use = "examples/topk_error_feedback.py:TopK", share = 0.05}."""

        share: float = Field(0.01, gt=0, le=1, description="share of the entries that is sent")

    def local(self, kit, received, memory):
        """Train, add the memory, send the largest entries, remember the rest."""
        trained = kit.descend(received)
        owed = trained.gradient + memory.get("error", 0)
        largest = kit.top_k(owed, max(1, round(self.settings.share * len(owed))))
        update = kit.sparse(owed, largest, trained.buffers)
        error = owed.copy()
        error[largest] = 0
        kit.note(left_out=float((error @ error) / max(owed @ owed, 1e-30)))
        return {"update": update}, {"error": error}
