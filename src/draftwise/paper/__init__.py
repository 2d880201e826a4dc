"""Every table and figure of 2211.17192: the theory as printed, the experiments on models at hand."""
