"""What the window does, without widgets: small objects with injected collaborators, testable with fakes."""
