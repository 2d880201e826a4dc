"""Which machine this is, as far as the speed and the bits of a model depend on it."""

import platform
from pathlib import Path
from zlib import crc32


def processor() -> str:
    """The processor's name and a digest of what it can do, from which ONNX Runtime chooses its kernels."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        facts = dict(
            reversed([[part.strip() for part in line.split(":", 1)] for line in lines if ":" in line])
        )
        return f"{facts['model name']} {crc32(facts['flags'].encode()):08x}"
    except (OSError, KeyError):
        return f"{platform.machine()} {platform.processor()}"
