/* One honest participant through sessions, attempts and a crash: which updates its tags are made of.
 *
 * A tag key follows from the group key, the session and the attempt. The server begins attempts and sessions as it likes;
 * the dealer of the group key is corrupt, and gives any of two in each session. The others do not enter: a participant's
 * pad is its own. Never is one tag key used for two updates.
 *
 * A session is new for whoever makes a new hello, and a participant makes one as it starts. What it needs to go on with
 * an upload that it has begun, the tag key and the words, is on disk before the upload leaves.
 */

#define SESSIONS 3
#define ATTEMPTS 2
#define NONE 0

byte session, group_key, attempt;    /* of the attempt under way, in memory and on disk */
byte sessions = 1, updates;          /* how many there have been */
byte words;                          /* the update of this position, in memory */
byte words_on_disk;
bit under_way, crashed;
byte tagged[12];                     /* by group key, session and attempt: the update */

#ifdef BUG_KEY_WITHOUT_SESSION
#define KEY (group_key * 6 + attempt)
#else
#define KEY (group_key * 6 + session * ATTEMPTS + attempt)
#endif

inline take_words() {
  if
  :: words == NONE -> updates++; words = updates      /* trains; never twice the same */
  :: else
  fi
#ifndef BUG_WORDS_NOT_STORED
  words_on_disk = words
#endif
}

active proctype Participant() {
end:
  do
  :: atomic { sessions < SESSIONS && !under_way ->    /* another session, with a new hello */
       session = sessions; sessions++; attempt = 0; under_way = 1;
       if
       :: group_key = 0
       :: group_key = 1
       fi }
  :: atomic { under_way && updates < 3 ->             /* uploads, and again the same if it has to go on after a crash */
       take_words();
       assert(tagged[KEY] == NONE || tagged[KEY] == words);
       tagged[KEY] = words }
  :: atomic { under_way && tagged[KEY] != NONE && attempt + 1 < ATTEMPTS -> attempt++ }
  :: atomic { under_way -> under_way = 0 }            /* membership changes: the session is over */
  :: atomic { !crashed ->
       crashed = 1;
       if
       :: words = words_on_disk                       /* a power cut: the last written step is continued */
       :: words = NONE; words_on_disk = NONE; group_key = 0; attempt = 0;
#ifdef BUG_OLD_HELLO
          skip                                        /* the session goes on, with the hello of before */
#else
          session = 0; under_way = 0
#endif
       fi }
  od
}
