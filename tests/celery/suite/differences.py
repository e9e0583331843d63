"""Which of Celery's integration tests don't pass with TaskLib, and why. The page `celery-tests.md` lists the same."""

from __future__ import annotations

DIFFERENT = {
    "stamps and `revoke_by_stamped_headers` are refused: put values into headers or tags": [
        "test_stamping_mechanism.test_stamping_workflow",
        "test_stamping_mechanism.test_stamp_value_type_defined_by_visitor",
        "test_stamping_mechanism.test_properties_not_affected_from_stamping",
        "test_stamping_mechanism.test_task_received_has_access_to_stamps",
        "test_stamping_mechanism.test_all_tasks_of_canvas_are_stamped",
        "test_stamping_mechanism.test_replace_merge_stamps",
        "test_stamping_mechanism.test_linking_stamped_sig",
        "test_stamping_mechanism.test_err_linking_stamped_sig",
        "test_stamping_mechanism.test_stamps_remain_on_task_retry",
        "test_stamping_mechanism.test_stamp_canvas_with_dictionary_link",
        "test_stamping_mechanism.test_stamp_canvas_with_dictionary_link_error",
        "test_tasks.test_revoked_by_headers_simple_canvas",
        "test_tasks.test_revoked_by_headers_complex_canvas",
        "test_tasks.test_revoke_by_stamped_headers_no_match",
    ],
    "`freeze` is refused: a task of a flow gets its id when the flow is submitted": [
        "test_chain.test_parent_ids",
        "test_chain.test_freezing_chain_sets_id_of_last_task",
        "test_group.test_mutable_errback_called_by_group",
        "test_chord.test_parent_ids",
        "test_chord.test_parent_ids__OR",
        "test_chord.test_mutable_errback_called_by_chord_from_simple",
        "test_chord.test_mutable_errback_called_by_chord_from_chain",
        "test_chord.test_mutable_errback_called_by_chord_from_chain_tail",
        "test_chord.test_mutable_errback_called_by_chord_from_group",
        "test_chord.test_mutable_errback_called_by_chord_from_group_fail_multiple_on_header_failure",
        "test_chord.test_mutable_errback_called_by_chord_from_group_fail_multiple_on_body_failure",
    ],
    "keys of Redis as a result backend": ["test_chord.test_chord_on_error"],
    "the header of a chord is a list of signatures: a generator is read where the chord is made": [
        "test_chord.test_generator",
    ],
    "results of nested groups are nested differently": [
        "test_chain.test_group_results_in_chain",
        "test_chord.test_nested_chord_group_chain_group_tail",
    ],
    "it expects a timeout, for a known fault of Celery: with TaskLib this canvas completes": [
        "test_group.test_nested_group_chord_body_chain",
    ],
    "an empty chain is refused: it has no task and no result": ["test_chain.test_replace_chain_with_empty_chain"],
    "`add_to_chord` is refused: return the work, or spawn it in a task of TaskLib": [
        "test_chord.test_add_to_chord",
        "test_chord.test_add_chord_to_chord",
    ],
    "`GroupResult.save` is refused: the ids are in the table of tasks": ["test_group.test_empty_group_result"],
    "soft time limits are refused: give `time_limit`": [
        "test_chain.test_chord_soft_timeout_recuperation",
        "test_tasks.test_soft_time_limit_exceeding_time_limit",
        "test_tasks.test_request_time_limits_set_via_apply_async",
        "test_tasks.test_request_time_limits_from_task_declaration",
        "test_tasks.test_apply_async_time_limits_override_task_declaration",
    ],
    "properties of a broker's messages": ["test_tasks.test_properties"],
    "`retry(expires=...)` is refused: a retry is the same task, with the same options": [
        "test_tasks.test_task_retried_once_with_expires",
    ],
    "arguments are checked at submission, also with `typing=False`": ["test_tasks.test_wrong_arguments"],
    "nothing is pickled, so the exception itself comes back instead of a wrapper": [
        "test_tasks.test_fail_with_unpickleable_exception",
    ],
    "the lines of Celery's own log": [
        "test_trace_log_arguments.test_task_success",
        "test_trace_log_arguments.test_task_failed",
    ],
    "subscriptions of Redis as a result backend": [
        "test_task_redis_result_backend.test_ignoring_result_no_subscriptions",
        "test_task_redis_result_backend.test_asyncresult_forget_cancels_subscription",
        "test_task_redis_result_backend.test_asyncresult_get_cancels_subscription",
    ],
    "the signal `task_received` is refused: use `task_prerun`": [
        "test_task_replacement.test_replaced_task_nesting_level_0",
        "test_task_replacement.test_replaced_task_nesting_level_1",
        "test_task_replacement.test_replaced_task_nesting_chain",
    ],
}
NOT_RUN = {
    "test_backend.py": "Azure's result backend",
    "test_connection_recovery.py": "connections to a broker",
    "test_database_backend.py": "the result backend on a database",
    "test_inspect.py": "`app.control.inspect`: use `tasklib workers`, `tasklib list`, `tasklib top`",
    "test_mem_leak_in_exception_handling.py": "it measures the memory of Celery's own tracebacks",
    "test_security.py": "signed messages",
    "test_serialization.py": "which serializers `celery worker` accepts: here it is JSON",
    "test_worker.py": "the command `celery worker`",
}
