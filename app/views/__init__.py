"""Widgets. They show values that controllers hand them and call back; none of them touches the engine or the store."""
