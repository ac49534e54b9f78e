"""The Qt style sheet for standard widgets, written from the tokens."""

from __future__ import annotations

from app.theme import Theme
from engine.paths import resource

_RULES = """
QLineEdit, QPushButton, QComboBox, QAbstractSpinBox, QMenu, QMenuBar, QToolTip, QListWidget, QCheckBox, QRadioButton,
QTreeWidget, QHeaderView {{
    font-family: "{family}"; font-size: {size}px;
}}
QToolTip {{ background: {raised}; color: {text}; border: 1px solid {border}; padding: 6px 8px; }}
QMenu {{ background: {raised}; color: {text}; border: 1px solid {border}; border-radius: 8px; padding: 4px; }}
QMenu::item {{ padding: 5px 24px 5px 10px; border-radius: 5px; }}
QMenu::item:selected {{ background: {accent_fill}; color: {on_accent}; }}
QMenu::item:disabled {{ color: {text_3}; background: transparent; }}
QMenu::icon {{ padding-left: 8px; }}
QMenu::separator {{ height: 1px; background: {hairline}; margin: 4px 8px; }}
QMenu::indicator {{ width: 0; }}
QMenuBar {{ background: {sidebar}; color: {text}; border-bottom: 1px solid {hairline}; }}
QMenuBar::item {{ padding: 4px 8px; border-radius: 4px; background: transparent; }}
QMenuBar::item:selected {{ background: {pressed}; }}
QPushButton {{
    background: {raised}; color: {text}; border: 1px solid {border}; border-radius: 6px; padding: 4px 12px;
    min-height: 18px;
}}
QPushButton:hover {{ background: {hover}; }}
QPushButton:pressed {{ background: {pressed}; }}
QPushButton:disabled {{ color: {text_3}; background: {window}; border-color: {hairline}; }}
QPushButton:focus {{ border: 1px solid {accent}; }}
QPushButton[primary="true"] {{ background: {accent_fill}; color: {on_accent}; border: 1px solid {accent_fill}; }}
QPushButton[primary="true"]:hover {{ background: {accent_hover}; }}
QPushButton[primary="true"]:focus {{ border: 1px solid {text}; }}
QPushButton[primary="true"]:disabled {{ background: {pressed}; color: {text_3}; border-color: {pressed}; }}
QPushButton[flat="true"] {{ background: transparent; border-color: transparent; color: {accent}; }}
QPushButton[flat="true"]:hover {{ background: {hover}; }}
QPushButton[flat="true"]:focus {{ border: 1px solid {accent}; }}
QLineEdit, QPlainTextEdit, QTextEdit, QSpinBox, QDoubleSpinBox, QComboBox {{
    background: {field}; color: {text}; border: 1px solid {border}; border-radius: 6px; padding: 4px 8px;
    selection-background-color: {selection}; selection-color: {text};
}}
QLineEdit:focus, QPlainTextEdit:focus, QSpinBox:focus, QDoubleSpinBox:focus, QComboBox:focus {{
    border: 1px solid {accent};
}}
QLineEdit:disabled, QSpinBox:disabled, QDoubleSpinBox:disabled, QComboBox:disabled {{
    color: {text_3}; background: {window}; border-color: {hairline};
}}
QComboBox::drop-down {{ border: none; width: 22px; }}
QComboBox::down-arrow {{ image: url("{icons}/chevron-down-{shade}.svg"); width: 12px; height: 12px; }}
QComboBox QAbstractItemView {{
    background: {raised}; border: 1px solid {border}; padding: 4px; outline: none;
    selection-background-color: {accent_fill}; selection-color: {on_accent};
}}
QAbstractSpinBox::up-button, QAbstractSpinBox::down-button {{ width: 0; border: none; }}
QAbstractSpinBox QLineEdit {{ color: {text}; background: transparent; border: none; padding: 0 6px; }}
QAbstractSpinBox {{ padding: 2px 8px; min-height: 19px; }}
QCheckBox {{ spacing: 8px; color: {text}; }}
QRadioButton {{ spacing: 6px; color: {text}; }}
QRadioButton::indicator {{
    width: 12px; height: 12px; border-radius: 7px; border: 1px solid {track}; background: {field};
}}
QRadioButton::indicator:checked {{
    width: 6px; height: 6px; border: 4px solid {accent_fill}; background: {on_accent};
}}
QRadioButton:focus {{ color: {accent}; }}
QTreeWidget {{ background: {window}; color: {text}; border: 1px solid {hairline}; border-radius: 6px; outline: none; }}
QTreeWidget::item {{ padding: 3px 4px; }}
QTreeWidget::item:disabled {{ color: {text_3}; }}
QHeaderView::section {{
    background: {window}; color: {text_2}; border: none; border-bottom: 1px solid {hairline}; padding: 4px 6px;
}}
QListView {{ background: transparent; border: none; outline: none; }}
QListWidget[framed="true"] {{
    background: {field}; color: {text}; border: 1px solid {border}; border-radius: 6px; padding: 2px;
}}
QListWidget[framed="true"]:focus {{ border: 1px solid {accent}; }}
QListWidget[framed="true"]::item {{ padding: 3px 6px; border-radius: 4px; }}
QListWidget[framed="true"]::item:selected {{ background: {accent_fill}; color: {on_accent}; }}
QListWidget[framed="true"]::item:selected:!active {{ background: {pressed}; color: {text}; }}
QScrollBar:vertical {{ background: transparent; width: 12px; margin: 2px; }}
QScrollBar:horizontal {{ background: transparent; height: 12px; margin: 2px; }}
QScrollBar::handle {{ background: {border}; border-radius: 4px; min-height: 32px; min-width: 32px; }}
QScrollBar::handle:hover {{ background: {track}; }}
QScrollBar::add-line, QScrollBar::sub-line, QScrollBar::add-page, QScrollBar::sub-page {{
    background: transparent; width: 0; height: 0;
}}
QSplitter::handle {{ background: {hairline}; }}
QDialog {{ background: {window}; }}
QProgressBar {{ background: {hover}; border: none; border-radius: 2px; }}
QProgressBar::chunk {{ background: {accent_fill}; border-radius: 2px; }}
"""


def stylesheet(theme: Theme) -> str:
    """Rules for the standard widgets in the theme's colours."""
    tokens = theme.tokens
    values = {name: getattr(tokens, name) for name in tokens.__slots__}
    font = theme.font()
    values |= {"family": font.family(), "size": font.pixelSize()}
    return _RULES.format(icons=resource("icons").as_posix(), shade="dark" if theme.dark else "light", **values)
