/* How tasks are found, for Spin: producers submit and wake one sleeper each; workers with one slot fall asleep, are
   woken, take a task or wake others for it, and leave. Every order of their steps is visited.

   The property: when nothing moves any more, no task waits while a worker sleeps. The polls are not part of the model:
   nothing but a worker that is gone may depend on them. Each MUTANT takes one precaution away, and Spin has to find the
   task that is left: see run.py. */

#define WORKERS 2
#ifndef PRODUCERS
#define PRODUCERS 2
#endif
#define NOBODY 9

#if MUTANT == 1
#define SLEEP_WITHOUT_LOOKING
#elif MUTANT == 2
#define RELY_BEFORE_ALL_KNOW
#elif MUTANT == 3
#define LOOK_BEFORE_WRITING
#elif MUTANT == 4
#define KEEP_WHEN_FULL
#elif MUTANT == 5
#define LEAVE_SILENTLY
#elif MUTANT == 6
#define FORGET_WHILE_LOOKING
#elif MUTANT == 7
#define WITHDRAW_AND_FORGET
#endif

/* Committed rows. */
byte waiting = 0;           /* tasks that no worker has claimed */
bool asleep[WORKERS];       /* workers.asleep */

bool writing[PRODUCERS];    /* transactions that have begun to write and are not over */
bool summoned[WORKERS];     /* a notification has come, and no look has begun since */

/* Ghosts. */
bool sleeping[WORKERS];     /* it waits for a notification, and for nothing else */
bool gone[WORKERS];
bool missed = false;        /* a notification came for a worker that was gone: then a poll has to find the task */

/* tasklib_wake_for: one sleeper by chance, of those whose announcement is committed. Nothing is written. */
inline choose(but) {
    if
    :: asleep[0] && but != 0 -> chosen = 0
    :: asleep[1] && but != 1 -> chosen = 1
    :: else -> chosen = NOBODY
    fi
}

inline notify() {
    if
    :: chosen != NOBODY && !gone[chosen] -> summoned[chosen] = true
    :: chosen != NOBODY && gone[chosen] -> missed = true
    :: chosen == NOBODY -> skip
    fi;
    chosen = NOBODY
}

/* pass_on.sql. */
inline pass_on() {
    if
    :: waiting > 0 -> choose(me); notify()
    :: waiting == 0 -> skip
    fi
}

proctype Producer(byte me) {
    byte chosen = NOBODY;
#ifdef LOOK_BEFORE_WRITING
    atomic { choose(NOBODY) }
    writing[me] = true;
#else
    writing[me] = true;             /* INSERT: from here on the transaction has an id */
    atomic { choose(NOBODY) }       /* the trigger, when the statement ends */
#endif
    atomic { waiting++; writing[me] = false; notify() }     /* COMMIT */
}

proctype Worker(byte me) {
    bool unaware[PRODUCERS];
    bool told = false, all_know = false, owes = false, found = false, is_long = false;
    byte chosen = NOBODY, n;
look:
    atomic { owes = owes || summoned[me]; summoned[me] = false }        /* arm() */
    atomic {                                                            /* claim.sql */
        found = waiting > 0;
        if
        :: found -> waiting--
        :: !found -> owes = false
        fi
    }
#ifdef FORGET_WHILE_LOOKING
    summoned[me] = false;
#endif
    if
    :: found ->
        if
        :: is_long = false
        :: is_long = true           /* it runs for ever: this worker will have no slot again */
        fi;
        goto no_room
    :: !found && summoned[me] -> goto look
    :: !found && !summoned[me] -> skip
    fi;
    if
    :: !told ->
        asleep[me] = true;                                              /* worker_sleeps.sql */
        atomic {                                                        /* next_writer.sql */
            told = true;
            n = 0;
            do
            :: n < PRODUCERS -> unaware[n] = writing[n]; n++
            :: n == PRODUCERS -> n = 0; break
            od
        }
#if defined(SLEEP_WITHOUT_LOOKING)
        all_know = true;
        goto sleep
#elif defined(RELY_BEFORE_ALL_KNOW)
        all_know = true;
        goto look
#else
        goto look
#endif
    :: told && !all_know ->
        atomic {                                                        /* outlook.sql: are those writers over? */
            all_know = true;
            n = 0;
            do
            :: n < PRODUCERS -> unaware[n] = unaware[n] && writing[n]; all_know = all_know && !unaware[n]; n++
            :: n == PRODUCERS -> n = 0; break
            od
        }
        goto look
    :: told && all_know -> skip
    fi;
sleep:
    sleeping[me] = true;
end_sleep:
    if
    :: atomic { summoned[me] -> sleeping[me] = false; goto look }
    :: atomic { me > 0 -> sleeping[me] = false }                        /* stop() */
    fi;
    asleep[me] = false;
#ifdef LEAVE_SILENTLY
    gone[me] = true;
#else
    atomic { pass_on(); gone[me] = true }
#endif
    goto end;
no_room:
end_no_room:
    do
    :: atomic { owes || summoned[me] -> owes = false; summoned[me] = false }
#ifndef KEEP_WHEN_FULL
        atomic { pass_on() }
#endif
    :: asleep[me] ->                                                    /* stay_awake(): it withdraws after a while */
        asleep[me] = false;
        atomic { told = false; all_know = false }
#ifdef WITHDRAW_AND_FORGET
        summoned[me] = false;
#endif
    :: atomic { !is_long && !owes && !summoned[me] -> goto look }       /* the function returns */
    od;
end:
    skip
}

init {
    byte n;
    atomic {
        n = 0;
        do
        :: n < WORKERS -> run Worker(n); n++
        :: n == WORKERS -> break
        od;
        n = 0;
        do
        :: n < PRODUCERS -> run Producer(n); n++
        :: n == PRODUCERS -> break
        od
    }
    timeout ->
    assert(waiting == 0 || missed || !(sleeping[0] || sleeping[1]))
}
