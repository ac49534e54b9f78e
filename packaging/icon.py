"""Draws the program's icon: the spark of resources/icons on a rounded square in the accent colour.

    python packaging/icon.py OUTDIR

Writes inkstand.png (256 pixels, for Linux) and Inkstand.icns (all sizes of macOS, whose shape and margins it has).
"""

from __future__ import annotations

import os
import struct
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SIZES = {"icp4": 16, "ic11": 32, "ic12": 64, "ic07": 128, "ic08": 256, "ic09": 512, "ic10": 1024}
"""Types of an icns file whose data is a PNG, and their pixels."""
SAME = {"icp5": "ic11", "ic13": "ic08", "ic14": "ic09"}
"""Types with the pixels of another: 32 points at 1x, 128 and 256 at 2x."""
PLATE, RADIUS, SPARK = 824 / 1024, 185 / 1024, 520 / 1024
"""Shares of the canvas, from Apple's template: the plate, the radius of its corners, and what is drawn on it."""
TOP, BOTTOM, INK = "#6478ec", "#3247b8", "#ffffff"


def draw(pixels: int) -> bytes:
    """The icon as a PNG of `pixels` square."""
    from PySide6.QtCore import QBuffer, QByteArray, QRectF, Qt  # noqa: PLC0415 (after the platform is chosen)
    from PySide6.QtGui import QColor, QImage, QLinearGradient, QPainter  # noqa: PLC0415
    from PySide6.QtSvg import QSvgRenderer  # noqa: PLC0415

    def centred(share: float) -> QRectF:
        return QRectF(pixels * (1 - share) / 2, pixels * (1 - share) / 2, pixels * share, pixels * share)

    image = QImage(pixels, pixels, QImage.Format.Format_ARGB32)
    image.fill(Qt.GlobalColor.transparent)
    painter = QPainter(image)
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    plate = centred(PLATE)
    fill = QLinearGradient(plate.topLeft(), plate.bottomLeft())
    fill.setColorAt(0, QColor(TOP))
    fill.setColorAt(1, QColor(BOTTOM))
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(fill)
    painter.drawRoundedRect(plate, pixels * RADIUS, pixels * RADIUS)
    spark = (ROOT / "resources" / "icons" / "spark.svg").read_text(encoding="utf-8")
    spark = spark.replace('fill="none"', f'fill="{INK}"').replace("currentColor", INK)
    QSvgRenderer(spark.encode()).render(painter, centred(SPARK))
    painter.end()
    data = QByteArray()
    buffer = QBuffer(data)
    buffer.open(QBuffer.OpenModeFlag.WriteOnly)
    image.save(buffer, "PNG")
    return bytes(data.data())


def icns(pictures: dict[str, bytes]) -> bytes:
    """An icns file: magic and total length, then type, length and data of each picture, lengths with their 8 bytes."""
    body = b"".join(kind.encode() + struct.pack(">I", len(png) + 8) + png for kind, png in pictures.items())
    return b"icns" + struct.pack(">I", len(body) + 8) + body


def main(argv: list[str]) -> int:
    if len(argv) != 1:
        sys.stderr.write("usage: python packaging/icon.py OUTDIR\n")
        return 2
    os.environ["QT_QPA_PLATFORM"] = "offscreen"
    out = Path(argv[0])
    out.mkdir(parents=True, exist_ok=True)
    pictures = {kind: draw(pixels) for kind, pixels in SIZES.items()}
    pictures |= {kind: pictures[other] for kind, other in SAME.items()}
    (out / "inkstand.png").write_bytes(pictures["ic08"])
    (out / "Inkstand.icns").write_bytes(icns(pictures))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
