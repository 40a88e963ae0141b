"""A model on a GPU, or on a CPU where no node has one. It is loaded once in each worker."""

from features import numbers

from stoker.client import endpoint


@endpoint(name="score-model", workers=(0, 1))  # gpu="NVIDIA L4" waits for one of these
class Scorer:
    """Scores texts."""

    def __init__(self) -> None:
        import torch  # a worker has it; this machine need not

        torch.manual_seed(0)
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.model = torch.nn.Linear(3, 1).to(self.device)

    def score(self, text: str) -> dict:
        """Scores one text."""
        import torch

        with torch.inference_mode():
            score = self.model(torch.tensor(numbers(text), device=self.device))
        return {"score": round(float(score), 4), "device": self.device}
