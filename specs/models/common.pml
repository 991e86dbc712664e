/* What the models share: sets of the four participants as bits, and the threshold of specs/sharing-and-graphs.md, section 2. */

#define PARTIES 4
#define EVERYONE 15
#define SMALLEST_COHORT 2

#ifndef COLLUDERS
#define COLLUDERS 1
#endif

/* The last participants are the corrupt ones. */
#define HONEST (PARTIES - COLLUDERS)
#define CORRUPT (EVERYONE & ~((1 << HONEST) - 1))

#define BIT(party) (1 << (party))
#define HAS(set, party) (((set) >> (party)) & 1)
#define SIZE(set) (((set) & 1) + (((set) >> 1) & 1) + (((set) >> 2) & 1) + (((set) >> 3) & 1))
#define INSIDE(part, set) (((part) & ~(set)) == 0)

#ifdef BUG_TWO_THIRDS
#define THRESHOLD(size) ((2 * (size)) / 3 + 1)
#else
#define THRESHOLD(size) (((size) + COLLUDERS) / 2 + 1)
#endif
