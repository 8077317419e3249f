"""A device that is planned for without being there."""

from __future__ import annotations

from dataclasses import dataclass

UNKNOWN = (0, 0)
HOPPER, BLACKWELL = (9, 0), (10, 0)


@dataclass(frozen=True, slots=True)
class AbsentDevice:
    """A kind of device ("cuda"), and which of that kind: a GPU's compute capability.

    Where nobody said which it is (`UNKNOWN`), it has what all GPUs since Ampere have.
    """

    kind: str
    capability: tuple[int, int] = UNKNOWN

    @property
    def prefers_cudnn_attention(self) -> bool:
        """Tell whether eager takes cuDNN's attention before others: on sm90 and sm100.

        `check_prefer_cudnn_attention` in aten/src/ATen/native/transformers/cuda/sdp_utils.cpp,
        with a cuDNN above 9.15, as the wheels of torch from 2.11 on have.
        """
        return self.capability in (HOPPER, BLACKWELL)

    @property
    def has_little_shared_memory(self) -> bool:
        """Tell whether kernels for large heads do not fit: sm86 to sm89, and sm120 and sm121.

        `check_requires_grad_and_head_dim_gt192_constraints_on_sm86_89_or_120`, in the same file.
        """
        return (8, 6) <= self.capability <= (8, 9) or (12, 0) <= self.capability <= (12, 1)
