"""draftwise inside other libraries; each is imported when its module is."""
